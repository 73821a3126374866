// A chart of lines over steps, on a canvas. The pointer, or arrow keys, read values off it.
import { figure, is_share, number, short, whole } from "./format.js";
import { smoothed } from "./curves.js";

const kHeight = 190, kLeft = 56, kRight = 10, kTop = 10, kBottom = 22;
const kColours = 6;  // --line-0 … of the style sheet

// 1, 2, 5 times a power of ten.
function round_step(span, lines) {
  const rough = span / lines, size = 10 ** Math.floor(Math.log10(rough));
  for (const f of [1, 2, 5]) if (rough <= f * size) return f * size;
  return 10 * size;
}

function ticks(low, high, lines) {
  const step = round_step(high - low, lines), all = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) all.push(i * step);
  return all;
}

// Powers of ten; where they are few, what lies between too.
function log_ticks(low, high) {
  const all = [];
  const between = Math.log10(high / low) < 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e += every)
    for (const f of between) if (f * 10 ** e >= low && f * 10 ** e <= high) all.push(f * 10 ** e);
  return all.length > 1 ? all : [low, high];
}

// The end of an axis that a few peaks, as of the first second of a run, do not flatten; the largest value if there are none.
export function bulk(values) {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b), most = sorted[sorted.length - 1];
  const usual = sorted[Math.floor(0.95 * (sorted.length - 1))];
  return sorted.length >= 20 && most > 3 * usual ? 1.5 * usual : most;
}

export class Chart {
  constructor(title) {
    this.title = title;
    this.hidden = new Set();
    this.cursor = null;  // a share of the width
    this.element = document.createElement("figure");
    this.element.className = "chart";
    const caption = this.element.appendChild(document.createElement("figcaption"));
    caption.textContent = title;
    this.caption = caption;
    this.canvas = this.element.appendChild(document.createElement("canvas"));
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.legend = this.element.appendChild(document.createElement("div"));
    this.legend.className = "legend";
    this.entries = new Map();
    this.listen();
  }

  listen() {
    const point = (at) => { this.cursor = at; this.draw(); };
    this.canvas.addEventListener("pointermove", (e) => {
      const box = this.canvas.getBoundingClientRect();
      point(Math.min(1, Math.max(0, (e.clientX - box.left - kLeft) / (box.width - kLeft - kRight))));
    });
    this.canvas.addEventListener("pointerleave", () => point(null));
    this.canvas.addEventListener("blur", () => point(null));
    this.canvas.addEventListener("keydown", (e) => {
      const by = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 }[e.key];
      if (by === undefined) return;
      e.preventDefault();
      point(Math.min(1, Math.max(0, (this.cursor ?? 1) + by)));
    });
  }

  // `lines`: [{name, points}]
  show(lines, { log, smoothing, peaks = true }) {
    this.shares = lines.length > 0 && lines.every((line) => is_share(line.name));
    this.lines = lines.map((line, i) => ({ ...line, colour: i % kColours, smooth: smoothed(line.points, smoothing) }));
    this.log = log;
    this.peaks = peaks;
    this.faint = smoothing > 0;
    this.element.hidden = !this.lines.some((line) => line.points.some(([, v]) => v !== null));
    if (!this.element.hidden) this.draw();
  }

  draw() {
    if (!this.lines) return;
    const width = this.element.clientWidth, ratio = devicePixelRatio || 1;
    if (width === 0) return;
    if (this.canvas.width !== Math.round(width * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(kHeight * ratio);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, kHeight);
    context.font = "11px system-ui, sans-serif";
    const seen = this.lines.filter((line) => !this.hidden.has(line.name));
    const frame = this.frame(seen, width);
    const style = getComputedStyle(this.element);
    if (frame) {
      this.axes(context, frame, style);
      context.save();
      context.beginPath();
      context.rect(kLeft, kTop - 2, width - kLeft - kRight + 2, kHeight - kTop - kBottom + 4);
      context.clip();
      for (const line of seen) {
        context.strokeStyle = style.getPropertyValue(`--line-${line.colour}`);
        if (this.faint) this.stroke(context, frame, line.points, 0.25, 1);
        this.stroke(context, frame, line.smooth, 1, 1.75);
      }
      context.restore();
      if (this.cursor !== null) this.mark(context, frame, seen, style);
    }
    this.tell(seen, frame);
  }

  frame(lines, width) {
    let left = Infinity, right = -Infinity, low = Infinity, high = -Infinity;
    for (const { points } of lines)
      for (const [step, v] of points) {
        left = Math.min(left, step);
        right = Math.max(right, step);
        if (v === null || (this.log && v <= 0)) continue;
        low = Math.min(low, v);
        high = Math.max(high, v);
      }
    if (!(low <= high)) return null;
    const most = high;
    if (!this.peaks && !this.log) high = Math.min(high, Math.max(...lines.map((line) => bulk(line.points.map(([, v]) => v)))));
    const caption = high < most ? `${this.title}, peak of ${short(most)} not drawn` : this.title;
    if (this.caption.textContent !== caption) this.caption.textContent = caption;
    if (right === left) right = left + 1;
    if (high - low < 1e-9 * Math.abs(high) || high === low) {
      const room = Math.abs(high) * 0.1 || 1;
      [low, high] = this.log ? [low / 2, high * 2] : [high === 0 ? 0 : low - room, high + room];
    } else if (!this.log) {
      const room = 0.05 * (high - low);
      [low, high] = [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
    }
    const inner = width - kLeft - kRight, tall = kHeight - kTop - kBottom;
    const up = this.log ? (v) => Math.log(v / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
    return { left, right, low, high, width, x: (s) => kLeft + (inner * (s - left)) / (right - left), y: (v) => kTop + tall * (1 - up(v)), step: (share) => left + share * (right - left) };
  }

  axes(context, frame, style) {
    context.strokeStyle = style.getPropertyValue("--line");
    context.fillStyle = style.getPropertyValue("--soft");
    context.lineWidth = 1;
    context.beginPath();
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const v of this.log ? log_ticks(frame.low, frame.high) : ticks(frame.low, frame.high, 4)) {
      const y = Math.round(frame.y(v)) + 0.5;
      context.moveTo(kLeft, y);
      context.lineTo(frame.width - kRight, y);
      context.fillText(this.shares ? `${number(100 * v)} %` : Math.abs(v) >= 1e4 && Math.abs(v) < 1e6 ? whole(v) : number(v), kLeft - 6, y);
    }
    context.stroke();
    context.textAlign = "center";
    context.textBaseline = "top";
    // Steps are whole: a short axis has fewer marks, not the same number twice.
    for (const step of ticks(frame.left, frame.right, Math.max(2, Math.min(frame.right - frame.left, frame.width / 110)))) {
      if (!Number.isInteger(step)) continue;
      const text = whole(step), half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(frame.x(step), frame.width - half), kHeight - kBottom + 6);
    }
  }

  stroke(context, frame, points, alpha, width) {
    context.globalAlpha = alpha;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.beginPath();
    let pen = false;
    for (const [step, v] of points) {
      if (v === null || (this.log && v <= 0)) {
        pen = false;
        continue;
      }
      if (pen) context.lineTo(frame.x(step), frame.y(v));
      else context.moveTo(frame.x(step), frame.y(v)), context.lineTo(frame.x(step) + 0.5, frame.y(v));
      pen = true;
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  mark(context, frame, lines, style) {
    const step = frame.step(this.cursor);
    context.strokeStyle = style.getPropertyValue("--soft");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(frame.x(step), kTop);
    context.lineTo(frame.x(step), kHeight - kBottom);
    context.stroke();
    for (const line of lines) {
      const near = this.near(line);
      if (!near || near[1] === null || (this.log && near[1] <= 0)) continue;
      context.fillStyle = style.getPropertyValue(`--line-${line.colour}`);
      context.beginPath();
      context.arc(frame.x(near[0]), frame.y(near[1]), 3, 0, 7);
      context.fill();
    }
  }

  // The point under the cursor, or the last.
  near(line) {
    const points = line.smooth;
    if (points.length === 0) return null;
    if (this.cursor === null) return points[points.length - 1];
    const first = points[0][0], at = first + this.cursor * (points[points.length - 1][0] - first);
    return points.reduce((best, p) => (Math.abs(p[0] - at) < Math.abs(best[0] - at) ? p : best));
  }

  // The legend has the values, and so has the label for those who do not see the canvas.
  tell(seen, frame) {
    const names = new Set(this.lines.map((line) => line.name));
    for (const [name, entry] of this.entries) if (!names.has(name)) entry.button.remove(), this.entries.delete(name);
    for (const line of this.lines) {
      const entry = this.entries.get(line.name) ?? this.entry(line.name);
      entry.button.className = `line-${line.colour}`;
      entry.value.textContent = figure(line.name, this.near(line)?.[1]);
      entry.button.setAttribute("aria-pressed", String(!this.hidden.has(line.name)));
    }
    const steps = this.cursor !== null && frame ? whole(frame.step(this.cursor)) : whole(frame?.right);
    this.canvas.setAttribute("aria-label", `${this.title} at step ${steps}: ${seen.map((line) => `${line.name} ${figure(line.name, this.near(line)?.[1])}`).join(", ")}`);
  }

  entry(name) {
    const button = this.legend.appendChild(document.createElement("button"));
    button.type = "button";
    button.append(document.createElement("i"), `${name} `);
    const value = button.appendChild(document.createElement("b"));
    button.addEventListener("click", () => {
      if (!this.hidden.delete(name)) this.hidden.add(name);
      this.draw();
    });
    const entry = { button, value };
    this.entries.set(name, entry);
    return entry;
  }
}
