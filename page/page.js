// One page for one run: what events say goes into plain data, and that is drawn at most ten times a second.
import { arguments_of, change_text, changeable_layers } from "./changes.js";
import { Chart } from "./chart.js";
import { Connection } from "./connection.js";
import { Curves } from "./curves.js";
import { duration, number, whole } from "./format.js";
import { FlowGraph } from "./flow.js";
import { Figures, LayerCards, Log, Streams } from "./panels.js";

const kBetweenPaints = 100, kStale = 2;  // ms, s
const at = (id) => document.getElementById(id);
const write = (e, text) => { if (e.textContent !== text) e.textContent = text; };

const curves = new Curves();
const figures = new Figures(at("figure-list"));
const flow = new FlowGraph(at("flow"));
const streams = new Streams(at("streams"));
const cards = new LayerCards(at("layers"), at("layers-of"));
const log = new Log(at("lines"));
const charts = new Map();
let status = null, graph = null, layers = null, stepped = false;

// ---- what comes ----

const kinds = {
  hello(e) {
    graph = e.graph;
    curves.begin(e.history);
    cards.begin();
    log.begin(e.log.lines);
    layers = null;
    stepped = true;
    kinds.status(e);
  },
  status(e) {
    if (status && e.status && (e.status.cycle !== status.cycle || (status.state === "starting" && e.status.state !== "starting"))) again();
    status = e.status ?? status;
  },
  step(e) {
    const window = Object.entries(status?.window?.metrics ?? {}).map(([name, v]) => [`window.${name}`, v]);
    curves.add({ ...e, metrics: { ...e.metrics, ...Object.fromEntries(window) } });
    stepped = true;
  },
  log(e) { log.add(e.line); },
  layers(e) { layers = e.layers; },
};

// Another cycle has another graph and another past; one that has begun knows its shapes.
async function again() {
  const get = async (path) => (await fetch(path, { headers: connection.authority(), cache: "no-store" })).json();
  try {
    const [g, h] = await Promise.all([get("/v1/graph"), get("/v1/history")]);
    graph = g;
    curves.begin(h);
    cards.begin();
    stepped = true;
  } catch {
    connection.again();  // its first event has both
  }
}

const connection = new Connection((e) => { kinds[e.kind]?.(e); ask(); }, (state, detail) => {
  at("token-form").hidden = state !== "locked";
  if (state === "locked") say(detail || "the token is missing or wrong", true);
  if (state === "locked" && document.activeElement === document.body) at("token").focus();
  where.detail = detail;
  where.state = state;
  reached();  // at once: a button of a connection that has gone must not take a click
  ask();
});
const where = { state: "connecting", detail: "" };

// ---- what is drawn ----

let asked = false, painted = 0;
function ask() {
  if (asked) return;
  asked = true;
  setTimeout(() => requestAnimationFrame(paint), Math.max(0, painted + kBetweenPaints - performance.now()));
}

function paint() {
  asked = false;
  painted = performance.now();
  reached();
  if (!status) return;
  offer();
  head();
  figures.show(status);
  flow.show(graph, status);
  streams.show(status.streams);
  if (layers) cards.show(layers), layers = null;
  if (stepped) draw(), stepped = false;
}

function reached() {
  const silent = connection.silence, stale = status !== null && silent > kStale;
  const words = { open: "live", connecting: "connecting", lost: "no connection", locked: "needs its token" };
  const word = where.state === "open" && stale ? "silent" : words[where.state] ?? where.state;
  write(at("connection"), stale && Number.isFinite(silent) ? `${word}, as of ${duration(Math.floor(silent))} ago` : where.detail && where.state === "lost" ? `${word}, ${where.detail}` : word);
  at("connection").className = `badge ${where.state === "open" && !stale ? "good" : "poor"}`;
  at("main").classList.toggle("stale", stale);
  document.documentElement.dataset.connection = where.state;
  if (where.state !== "open") for (const e of document.querySelectorAll("#acts :is(button, input), #layer-form :is(button, input)")) e.disabled = true;  // head() lets go of them
}

function head() {
  write(at("graph-name"), status.graph);
  document.title = `${status.state === "running" ? "" : `${status.state} · `}${status.graph} · Harmonics`;
  write(at("run-state"), status.state);
  at("run-state").className = `badge state-${status.state}`;
  at("health").hidden = status.health === "ok";
  at("health").className = `badge ${status.health}`;
  write(at("health"), `streams ${status.health}`);
  at("fraction").hidden = status.fraction === null;
  at("fraction").value = status.fraction ?? 0;
  const paused = status.state === "paused" || status.state === "pausing", runs = status.state === "running" || paused;
  write(at("pause"), paused ? "Resume" : "Pause");
  if (where.state !== "open") return;
  at("pause").disabled = !runs;
  at("step").disabled = status.state !== "paused";
  at("checkpoint").disabled = !runs || !status.checkpointing;
  for (const id of ["rate", "rate-set"]) at(id).disabled = !runs || !status.trains;
  at("rate-schedule").disabled = !runs || !status.learning_rate_set;
  at("rate").placeholder = number(status.learning_rate);
  for (const id of ["layer-arguments", "layer-set"]) at(id).disabled = !runs || at("layer").options.length === 0;
  at("layer-undo").disabled = !runs;
}

// The layers to choose from; the choice stays while the flow is the same.
let offered = null;
function offer() {
  if (graph === offered) return;
  offered = graph;
  const names = changeable_layers(graph), before = at("layer").value;
  at("layer").replaceChildren(...names.map((name) => new Option(name)));
  if (names.includes(before)) at("layer").value = before;
}

function draw() {
  const how = { log: at("log").checked, smoothing: Number(at("smoothing").value) };
  for (const [title, names] of Object.entries(curves.charts())) {
    if (!charts.has(title)) {
      charts.set(title, new Chart(title));
      at("charts").append(charts.get(title).element);
    }
    charts.get(title).show(names.map((name) => ({ name: name.replaceAll("_", " "), points: curves.of(name) })), { ...how, log: how.log && title === "Loss", peaks: title !== "Samples a second" });
  }
}

// ---- what is asked ----

function say(text, wrong = false) {
  write(at("said"), text);
  at("said").className = wrong ? "bad" : "";
}

async function act(message) {
  try {
    const answer = await connection.control(message);
    status = answer.status ?? status;
    const done = { pause: "paused", resume: "resumed", step: "stepped", checkpoint: `checkpoint written: ${status.checkpoint?.path}`, learning_rate: message.value === null ? "the learning rate follows the schedule again" : `learning rate ${number(message.value)} from the next step on` };
    say(`${answer.change ? change_text(answer.change) : done[message.do] ?? answer.done}, step ${whole(status.step)}`);
    return true;
  } catch (e) {
    say(e.message, true);
    return false;
  } finally {
    ask();
  }
}

at("pause").addEventListener("click", () => act({ do: at("pause").textContent === "Pause" ? "pause" : "resume" }));
at("step").addEventListener("click", () => act({ do: "step", count: 1 }));
at("checkpoint").addEventListener("click", () => act({ do: "checkpoint" }));
at("rate-schedule").addEventListener("click", () => act({ do: "learning_rate", value: null }));
at("rate-form").addEventListener("submit", (e) => {
  e.preventDefault();
  const text = at("rate").value.trim(), value = Number(text);
  if (text === "" || !Number.isFinite(value)) return say(`'${text}' is not a number`, true);
  at("rate").value = "";
  act({ do: "learning_rate", value });
});
at("layer-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  let given;
  try {
    given = arguments_of(at("layer-arguments").value);
  } catch (wrong) {
    return say(wrong.message, true);
  }
  if (await act({ do: "layer", layer: at("layer").value, arguments: given })) at("layer-arguments").value = "";
});
at("layer-undo").addEventListener("click", () => act({ do: "undo" }));
at("token-form").addEventListener("submit", (e) => {
  e.preventDefault();
  at("token-form").hidden = true;
  say("");
  connection.token = at("token").value.trim();
  at("token").value = "";
});

addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || e.target.closest?.("input, select")) return;
  const button = at({ p: "pause", s: "step", c: "checkpoint" }[e.key] ?? "");
  if (button && !button.disabled) button.click();
});

// ---- how it looks ----

for (const id of ["log", "smoothing"]) at(id).addEventListener("input", () => { stepped = true; ask(); });
new ResizeObserver(() => { stepped = true; ask(); }).observe(at("charts"));

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => localStorage.getItem("harmonics.theme") ?? (dark.matches ? "dark" : "light");
const wear = () => { document.documentElement.dataset.theme = theme(); stepped = true; ask(); };
at("theme").addEventListener("click", () => { localStorage.setItem("harmonics.theme", theme() === "dark" ? "light" : "dark"); wear(); });
dark.addEventListener("change", wear);
wear();

setInterval(ask, 1000);  // what is stale grows older
connection.open();
