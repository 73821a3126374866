// The flow as a graph: drawn once, then only what moves changes: rates, how full the queues are, how hard they press back.
import { layout } from "./layout.js";
import { percent, rate, shape, short } from "./format.js";

const kSvg = "http://www.w3.org/2000/svg";
const kPad = 14, kNarrow = 640, kLongest = 24, kLetter = 6.2;  // letters of a label, width of one

const make = (tag, attributes, ...content) => {
  const e = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...content);
  return e;
};
const cut = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

// Losses are nodes here: what a layer gives and what it should give meet in them.
function drawn(graph, cycle) {
  const runs = (e) => e.cycle === null || e.cycle === cycle;
  const nodes = graph.nodes.map((n) => ({ id: n.name, kind: n.kind, name: n.name, detail: n.parameters > 0 ? `${shape(n.shape)} · ${short(n.parameters)}` : shape(n.shape) }));
  const edges = [];
  graph.edges.forEach((e, i) => {
    if (!runs(e)) return;
    if (e.kind !== "tap") {
      const beside = edges.find((other) => other.from === e.from && other.to === e.to);  // drawn as one arrow
      if (beside) return beside.calls.push("+", ...e.calls);
      return edges.push({ from: e.from, to: e.to, calls: [...e.calls], producer: e.from });
    }
    const id = `loss\n${i}`;
    nodes.push({ id, kind: "loss", name: e.calls.join(", ") || "loss", detail: "loss" });
    edges.push({ from: e.to, to: id, calls: [], producer: null }, { from: e.from, to: id, calls: [], producer: e.from });
  });
  const used = new Set(edges.flatMap((e) => [e.from, e.to]));
  const producers = new Set(graph.nodes.filter((n) => n.kind === "producer").map((n) => n.name));
  for (const e of edges) if (!producers.has(e.producer)) e.producer = null;
  return { nodes: nodes.filter((n) => used.has(n.id)), edges };
}

export class FlowGraph {
  constructor(svg) {
    this.svg = svg;
    this.key = "";
    new ResizeObserver(() => { if (this.graph) this.build(this.graph, this.cycle); }).observe(svg.parentElement);
  }

  show(graph, status) {
    if (!graph?.nodes) return;
    if (graph !== this.graph || status.cycle !== this.cycle) this.key = "", this.build(graph, status.cycle);
    this.move(status);
  }

  build(graph, cycle) {
    this.graph = graph;
    this.cycle = cycle;
    const down = this.svg.parentElement.clientWidth < kNarrow;  // on a phone from top to bottom
    if (this.key === String(down)) return;
    this.key = String(down);
    const { nodes, edges } = drawn(graph, cycle);
    for (const n of nodes) {
      n.width = Math.min(190, Math.max(n.kind === "producer" ? 128 : 76, 18 + 7.3 * Math.max(cut(n.name, 24).length, 0.85 * n.detail.length)));
      n.height = n.kind === "producer" ? 64 : 42;
      [n.along, n.across] = down ? [n.height, n.width] : [n.width, n.height];
    }
    if (nodes.length === 0) return;
    for (const e of edges) {
      e.label = cut(e.calls.join(" "), kLongest);
      const wide = kLetter * Math.max(e.label.length, 7) + 20;  // rates have seven letters
      [e.along, e.across] = down ? [0, wide] : [wide, 0];
    }
    const plan = layout(nodes, edges);
    const turn = ([along, across]) => (down ? [kPad + across, kPad + along] : [kPad + along, kPad + across]);
    const [width, height] = down ? [plan.across, plan.along] : [plan.along, plan.across];
    this.svg.setAttribute("viewBox", `0 0 ${width + 2 * kPad} ${height + 2 * kPad + 6}`);
    this.svg.setAttribute("width", width + 2 * kPad);
    this.svg.setAttribute("height", height + 2 * kPad + 6);
    const arrow = make("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, make("path", { d: "M0 0 8 4 0 8z" }));
    this.svg.replaceChildren(make("defs", {}, arrow));
    this.labels = [];  // above all arrows
    this.edges = edges.map((e, i) => this.edge(e, plan.paths[i].map(turn), down));
    this.svg.append(...this.labels);
    this.nodes = nodes.map((n) => this.node(n, turn(plan.at.get(n.id))));
    this.svg.setAttribute("aria-label", `${graph.nodes.length} nodes: ${edges.map((e) => `${e.from} to ${e.to.split("\n")[0]}`).join(", ")}`);
  }

  edge(e, points, down) {
    let d = `M${points[0]}`;
    for (let i = 1; i < points.length; ++i) {
      const [a, b] = [points[i - 1], points[i]];
      const [m, n] = down ? [[a[0], (a[1] + b[1]) / 2], [b[0], (a[1] + b[1]) / 2]] : [[(a[0] + b[0]) / 2, a[1]], [(a[0] + b[0]) / 2, b[1]]];
      d += `C${m} ${n} ${b}`;
    }
    const line = make("path", { d, class: "edge", "marker-end": "url(#tip)" });
    const half = Math.floor((points.length - 1) / 2), [a, b] = [points[half], points[Math.min(half + 1, points.length - 1)]];
    const [x, y] = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    const text = (by, kind) => make("text", { x, y: y + by, class: kind, "text-anchor": "middle" });
    const label = text(down ? -2 : -6, "edge-label"), now = text(13, "edge-now"), full = text(27, "edge-now");
    label.append(e.label);
    line.append(make("title", {}, `${e.from} to ${e.to.split("\n")[0]}${e.calls.length > 0 ? `: ${e.calls.join(" ")}` : ""}`));
    this.svg.append(line);
    this.labels.push(label, now, full);
    return { ...e, line, now, full };
  }

  node(n, [x, y]) {
    const left = x - n.width / 2, top = y - n.height / 2;
    const group = make("g", { class: `node ${n.kind}` }, make("title", {}, `${n.kind} ${n.name}, ${n.detail}`));
    group.append(make("rect", { x: left, y: top, width: n.width, height: n.height, rx: n.kind === "layer" ? 6 : 16, class: "box" }));
    group.append(make("text", { x, y: top + 17, "text-anchor": "middle", class: "name" }, cut(n.name, 24)), make("text", { x, y: top + 32, "text-anchor": "middle", class: "detail" }, n.detail));
    let fill = null, queue = null;
    if (n.kind === "producer") {
      const wide = n.width - 36;
      fill = make("rect", { x: left + 18, y: top + 39, width: 0, height: 4, class: "fill" });
      queue = make("text", { x, y: top + 56, "text-anchor": "middle", class: "detail queue" });
      group.append(make("rect", { x: left + 18, y: top + 39, width: wide, height: 4, class: "room" }), fill, queue);
      fill.dataset.wide = wide;
    }
    this.svg.append(group);
    return { ...n, group, fill, queue };
  }

  move(status) {
    const runs = status.state === "running";
    const streams = new Map(status.streams.map((s) => [s.name, s]));
    for (const e of this.edges ?? []) {
      const s = streams.get(e.producer);
      const pressure = s?.back_pressure ?? 0;
      const kind = s?.health === "failed" ? "failed" : pressure >= 0.9 ? "full" : pressure >= 0.5 ? "high" : runs ? "calm" : "idle";
      e.line.setAttribute("class", `edge ${kind}`);
      const flows = s ? s.rate : e.producer ? null : status.samples_per_second;
      e.now.textContent = s?.health === "failed" ? "failed" : rate(runs ? flows : 0);
      e.full.textContent = pressure >= 0.5 ? `${percent(pressure)} full` : "";
    }
    for (const n of this.nodes ?? []) {
      if (!n.fill) continue;
      const s = streams.get(n.name);
      const full = s?.back_pressure ?? null;
      n.fill.setAttribute("width", (full ?? 0) * Number(n.fill.dataset.wide));
      n.fill.setAttribute("class", `fill ${full >= 0.9 ? "full" : full >= 0.5 ? "high" : "calm"}`);
      n.queue.textContent = full === null ? "" : `${short(s.queued_samples)} wait · ${percent(full)}`;
      n.group.classList.toggle("absent", !s);
    }
  }
}
