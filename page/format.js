// Numbers as people read them. What is not known is a dash.
export const kDash = "–";
const known = (v) => typeof v === "number" && Number.isFinite(v);

export const whole = (v) => (known(v) ? Math.round(v).toLocaleString("en") : kDash);

// Four digits that count: 0.0829, 1.234e-7.
export function number(v) {
  if (!known(v)) return kDash;
  const size = Math.abs(v);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return v.toExponential(2).replace("e+", "e");
  return String(Number(v.toPrecision(4)));
}

const three = (v) => (Math.abs(v) >= 99.95 ? String(Math.round(v)) : v.toPrecision(3));

// 53.6k, 1.20M
export function short(v) {
  if (!known(v)) return kDash;
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(v) >= size) return three(v / size) + unit;
  return Math.abs(v) >= 100 || Number.isInteger(v) ? String(Math.round(v)) : v.toPrecision(2);
}

export const rate = (v) => (known(v) ? `${short(v)}/s` : kDash);

export function bytes(v) {
  if (!known(v)) return kDash;
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (v >= size) return `${three(v / size)} ${unit}`;
  return `${Math.round(v)} B`;
}

export function duration(v) {
  if (!known(v)) return kDash;
  if (v < 1) return `${Math.round(1000 * v)} ms`;
  if (v < 60) return `${v.toFixed(v < 10 ? 1 : 0)} s`;
  if (v < 3600) return `${Math.floor(v / 60)} min ${Math.floor(v % 60)} s`;
  return `${Math.floor(v / 3600)} h ${Math.floor((v % 3600) / 60)} min`;
}

export const percent = (v) => (known(v) ? `${(100 * v).toFixed(v > 0 && v < 0.1 ? 1 : 0)} %` : kDash);

// Shares of samples as percentages, as the terminal prints them; other metrics as numbers.
export const is_share = (name) => /(^|[. ])accuracy$/.test(name);
export const figure = (name, v) => (is_share(name) && known(v) ? `${(100 * v).toFixed(2)} %` : number(v));

export const shape = (v) => (Array.isArray(v) ? (v.length === 0 ? "1" : v.join(" × ")) : kDash);
