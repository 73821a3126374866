// Everything measured over the run, in bounded memory: as it grows every second point is left out.
const kMost = 1024, kMostNames = 64;

export class Curves {
  constructor() { this.begin({ names: [], points: [] }); }

  // `history` as /v1/history gives it.
  begin(history) {
    this.names = history.names.slice(0, kMostNames);
    this.points = history.points.map((p) => ({ ...p, values: p.values.slice(0, kMostNames) }));
    this.gap = 0;
    while (this.points.length > kMost) this.thin();
  }

  // An event of the kind "step". The last point is always there, however close to the one before.
  add(event) {
    const last = this.points[this.points.length - 1];
    if (last && event.step < last.step) this.begin({ names: [], points: [] });  // another cycle, or run
    for (const name of Object.keys(event.metrics))
      if (!this.names.includes(name) && this.names.length < kMostNames) this.names.push(name);
    const values = this.names.map((name) => event.metrics[name] ?? null);
    const point = { step: event.step, seconds: event.seconds, samples_per_second: event.samples_per_second, learning_rate: event.learning_rate, values };
    const n = this.points.length;
    if (n > 1 && point.step - this.points[n - 2].step < this.gap) this.points[n - 1] = point;
    else this.points.push(point);
    if (this.points.length > kMost) this.thin();
  }

  thin() {
    const last = this.points[this.points.length - 1];
    this.points = this.points.filter((_, i) => i % 2 === 0);
    if (this.points[this.points.length - 1] !== last) this.points.push(last);
    this.gap = (last.step - this.points[0].step) / (this.points.length - 1);
  }

  // [[step, value], …]; a value that is not finite is null.
  of(name) {
    if (name === "samples_per_second" || name === "learning_rate") return this.points.map((p) => [p.step, p[name]]);
    const i = this.names.indexOf(name);
    return this.points.map((p) => [p.step, p.values[i] ?? null]);
  }

  // What the charts show: {title: [names]}.
  charts() {
    const names = distinct(this.names.filter((_, i) => this.points.some((p) => (p.values[i] ?? null) !== null)));
    const shown = names.filter(is_loss), metrics = names.filter((n) => !is_loss(n));
    const rates = new Set(this.points.map((p) => p.learning_rate));
    return { Loss: shown, Metrics: metrics, "Samples a second": ["samples_per_second"], "Learning rate": rates.size > 1 ? ["learning_rate"] : [] };
  }
}

const is_loss = (name) => name === "loss" || name.endsWith(".loss");

// Where a graph has one loss it is not there twice, as "loss" and "output.loss"; so with other metrics, and with "val." and "window."
// before them.
export function distinct(names) {
  const parts = (name) => /^(val\.|window\.)?(.+\.)?([^.]+)$/.exec(name) ?? [name, "", "", name];
  const same = (a, b) => (a[1] ?? "") === (b[1] ?? "") && a[3] === b[3];
  const all = names.map(parts);
  return names.filter((_, i) => {
    const alike = all.filter((other) => same(other, all[i]));
    return !all[i][2] || alike.length !== 2 || alike.every((other) => other[2]);
  });
}

// Each value the mean of those before it, the older the less.
export function smoothed(points, strength) {
  if (strength <= 0) return points;
  let sum = 0, weight = 0;
  return points.map(([step, v]) => {
    if (v === null) return [step, null];
    sum = strength * sum + v;
    weight = strength * weight + 1;
    return [step, sum / weight];
  });
}
