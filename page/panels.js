// Figures, the table of streams, the cards of layers, the log: each shows what it is given, and keeps its elements.
import { distinct } from "./curves.js";
import { bytes, duration, figure, kDash, number, percent, rate, shape, short, whole } from "./format.js";

const kSvg = "http://www.w3.org/2000/svg";
const kPast = 60;  // norms remembered a layer

const element = (tag, name = "", text = "") => {
  const e = document.createElement(tag);
  if (name) e.className = name;
  e.textContent = text;
  return e;
};
// Writing what is there already would wake those who read the page aloud.
const write = (e, text) => { if (e.textContent !== text) e.textContent = text; };

export class Figures {
  constructor(list) {
    this.list = list;
    this.values = new Map();
  }

  show(s) {
    const rows = {
      Step: whole(s.step),
      Epoch: s.epochs ? `${whole(s.epoch)} of ${whole(s.epochs)}` : whole(s.epoch),
      Loss: number(s.loss),
      "Samples/s": short(s.samples_per_second),
      Samples: whole(s.samples),
      "Learning rate": number(s.learning_rate) + (s.learning_rate_set ? " (set)" : ""),
      Time: duration(s.seconds),
      Checkpoint: s.checkpoint ? `step ${whole(s.checkpoint.step)}, ${duration(s.checkpoint.seconds_ago)} ago` : s.checkpointing ? "none yet" : "off",
    };
    if (s.cycles > 1) rows.Cycle = `${s.cycle} of ${s.cycles}`;
    for (const name of distinct(Object.keys(s.window?.metrics ?? {}))) rows[`${name}, new data`] = figure(name, s.window.metrics[name]);
    if (s.serving?.requests > 0) rows.Predictions = `${rate(s.serving.requests_per_second)}, p99 ${number(s.serving.p99_ms)} ms`;
    if (s.serving?.refused > 0) rows["Requests refused"] = whole(s.serving.refused);
    for (const [name, value] of Object.entries(rows)) write(this.value(name), value);
    for (const [name, value] of this.values) value.parentElement.hidden = !(name in rows);
  }

  value(name) {
    if (!this.values.has(name)) {
      const row = this.list.appendChild(element("div"));
      row.append(element("dt", "", name), element("dd"));
      this.values.set(name, row.lastChild);
    }
    return this.values.get(name);
  }
}

const kColumns = [
  ["Stream", (s) => s.name],
  ["State", (s) => (s.health === "ok" ? s.state : `${s.state}, ${s.health}`)],
  ["Rate", (s) => rate(s.rate)],
  ["Samples", (s) => whole(s.samples)],
  ["Queued", (s) => (s.queued_samples === null ? "–" : `${whole(s.queued_samples)} · ${bytes(s.queued_bytes)} of ${bytes(s.window_bytes)}`)],
  ["Full", (s) => percent(s.back_pressure)],
  ["Lag", (s) => duration(s.lag_seconds)],
  ["Senders", (s) => (s.senders === null ? "–" : `${s.connected} of ${s.senders}`)],
  ["Lost", (s) => whole(s.lost)],
  ["Duplicates", (s) => whole(s.duplicates)],
  ["Dropped", (s) => whole(s.dropped)],
  ["Unpaired", (s) => (s.unpaired === null ? whole(null) : whole(s.unpaired + s.late))],
  ["Refused", (s) => whole(s.refused)],
  ["Last error", (s) => s.last_error ?? ""],
];

export class Streams {
  constructor(table) {
    const head = table.appendChild(element("thead")).appendChild(element("tr"));
    for (const [title] of kColumns) head.appendChild(element("th", "", title)).scope = "col";
    this.body = table.appendChild(element("tbody"));
  }

  show(streams) {
    while (this.body.rows.length > streams.length) this.body.deleteRow(-1);
    streams.forEach((s, i) => {
      const row = this.body.rows[i] ?? this.row();
      row.className = s.health;
      kColumns.forEach(([title, text], k) => {
        write(row.cells[k], text(s));
        row.cells[k].className = (title === "Lost" || title === "Refused") && Number(s[title.toLowerCase()]) > 0 ? "bad" : "";
        if (row.cells[k].textContent === kDash) row.cells[k].className = "unknown";
        if (title === "Full" && s.back_pressure !== null) row.cells[k].className = s.back_pressure >= 0.9 ? "full" : s.back_pressure >= 0.5 ? "high" : "";
      });
    });
  }

  row() {
    const row = this.body.insertRow();
    for (const [title] of kColumns) row.insertCell().dataset.title = title;
    return row;
  }
}

// Bars of a histogram as one path in a box of 160 by 44; their heights are roots, or a layer of many zeros would show nothing else.
function bars(counts) {
  const most = Math.sqrt(Math.max(1, ...counts)), wide = 160 / counts.length;
  return counts.map((c, i) => (c > 0 ? `M${(i * wide).toFixed(1)} 44v${(-Math.max(1, (44 * Math.sqrt(c)) / most)).toFixed(1)}h${(wide - 0.6).toFixed(1)}V44z` : "")).join("");
}

function spark(past) {
  const known = past.filter((v) => v !== null);
  if (known.length < 2) return "";
  const low = Math.min(...known), span = Math.max(...known) - low || 1;
  return past.map((v, i) => (v === null ? "" : `${i === 0 || past[i - 1] === null ? "M" : "L"}${((160 * i) / (kPast - 1)).toFixed(1)} ${(17 - (16 * (v - low)) / span).toFixed(1)}`)).join("");
}

export class LayerCards {
  constructor(box, of) {
    this.box = box;
    this.of = of;
    this.cards = new Map();
  }

  // Of another run or cycle.
  begin() {
    this.cards.clear();
    this.box.replaceChildren();
  }

  show(cards) {
    if (cards.error) return write(this.of, cards.error);
    write(this.of, cards.samples > 0 ? `Cycle ${cards.cycle}, step ${whole(cards.step)}, activations of ${cards.samples} samples.` : `Cycle ${cards.cycle}, step ${whole(cards.step)}, before the first batch.`);
    const driven = cards.layers.filter((l) => cards.samples === 0 || l.activation !== null);  // others are of another cycle
    const names = new Set(driven.map((l) => l.name));
    for (const [name, card] of this.cards) if (!names.has(name)) card.element.remove(), this.cards.delete(name);
    for (const layer of driven) this.fill(this.cards.get(layer.name) ?? this.card(layer.name), layer, cards.step);
  }

  fill(card, layer, step) {
    write(card.about, `${shape(layer.shape)} · ${layer.parameters > 0 ? `${whole(layer.parameters)} weights` : "no weights"}`);
    write(card.norms, layer.parameters > 0 ? `norm ${number(layer.weight_norm)} · gradient norm ${number(layer.gradient_norm)}` : "");
    if (card.step !== step) {
      card.step = step;
      card.past.push(layer.gradient_norm);
      if (card.past.length > kPast) card.past.shift();
      card.line.setAttribute("d", spark(card.past));
    }
    const a = layer.activation;
    card.histogram.setAttribute("d", a ? bars(a.counts) : "");
    write(card.range, a ? `${number(a.from)} … ${number(a.to)}, mean ${number(a.mean)} ± ${number(a.deviation)}` : "");
    write(card.zeros, a && a.zeros > 0 ? `${percent(a.zeros)} zero` : "");
    write(card.wrong, a?.not_finite > 0 ? `${whole(a.not_finite)} not finite` : "");
    card.picture.setAttribute("aria-label", a ? `activations of ${layer.name}, from ${number(a.from)} to ${number(a.to)}, mean ${number(a.mean)}` : "no activations yet");
  }

  card(name) {
    const card = { element: this.box.appendChild(element("article", "card")), past: [] };
    const part = (tag, kind) => card.element.appendChild(element(tag, kind));
    part("h3").textContent = name;
    card.about = part("p");
    card.norms = part("p");
    const picture = (height, kind) => {
      const svg = card.element.appendChild(document.createElementNS(kSvg, "svg"));
      svg.setAttribute("viewBox", `0 0 160 ${height}`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("class", kind);
      return svg.appendChild(document.createElementNS(kSvg, "path"));
    };
    card.line = picture(18, "spark");
    card.line.parentElement.setAttribute("aria-hidden", "true");
    card.histogram = picture(44, "histogram");
    card.picture = card.histogram.parentElement;
    card.picture.setAttribute("role", "img");
    card.range = part("p", "soft");
    card.zeros = part("span", "soft");
    card.wrong = part("span", "bad");
    this.cards.set(name, card);
    return card;
  }
}

export class Log {
  static kMost = 256;

  constructor(list) {
    this.list = list;
    this.last = 0;
  }

  begin(lines) {
    this.list.replaceChildren();
    this.last = 0;
    for (const line of lines) this.add(line);
  }

  // The newest stands first.
  add(line) {
    if (line.number <= this.last) return;
    this.last = line.number;
    const row = element("li", line.level);
    row.append(element("time", "", duration(line.seconds)), line.level === "note" ? "" : `${line.level}: `, line.text);
    this.list.prepend(row);
    while (this.list.childElementCount > Log.kMost) this.list.lastElementChild.remove();
  }
}
