// LSTM and GRU scans and their gradients: a part computes a share of the samples over all positions.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct RecurrentContext {
  int64_t batch, positions, width;
  bool reverse;
  bool has_dcell;                // lstm gradient: the gradient of the cell states is an input
  uint32_t pack_parts, parts;    // phases: pack the weight, scan
  int panel_vectors;             // gradients: vectors per panel; 4 for few samples per part, else 2
  int64_t packed;                // floats of the packed weight
  int64_t stride;                // floats between the states of samples
  int64_t gate_stride;           // gradients: floats between the gates of samples
  int64_t rows, part_workspace;  // largest number of samples of a part; floats of its workspace
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {

// ---- products of few rows and a packed weight, and the division of rows into blocks

namespace {

// Accumulators of a register block.
#if defined(__AVX512F__)
constexpr int kTile = 24;
#else
constexpr int kTile = 12;
#endif

template <int kCount>
struct Count {
  static constexpr int value = kCount;
};
// Calls f(Count<n>), 1 <= n <= kMost.
template <int kMost, typename F>
HM_INLINE void with_count(int64_t n, F f) {
  if constexpr (kMost > 1)
    if (n < kMost) return with_count<kMost - 1>(n, f);
  f(Count<kMost>{});
}
// Calls f(Count<n>, first) for blocks of at most kMost rows, as even as possible.
template <int kMost, typename F>
HM_INLINE void in_blocks(int64_t rows, F f) {
  const uint32_t blocks = static_cast<uint32_t>((rows + kMost - 1) / kMost);
  for (uint32_t i = 0; i < blocks; ++i) {
    const Range block = share(rows, blocks, i);
    with_count<kMost>(
        block.end - block.begin, [&](auto n) __attribute__((always_inline)) { f(n, block.begin); });
  }
}

// sum[i][v] += row i of a times vector v of the panel's columns.
template <int kRows, int kVectors>
HM_INLINE void products(const float* a, int64_t a_row, const float* panel, int64_t depth, vf (&sum)[kRows][kVectors]) {
  for (int64_t k = 0; k < depth; ++k, panel += kVectors * kWidth) {
    vf row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = load(panel + v * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(a[i * a_row + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
}

// Samples and memory of one part of a scan.
struct ScanPart {
  const RecurrentContext& c;
  Range samples;
  float* memory;

  ScanPart(const RecurrentContext& context, float* workspace, uint32_t part)
      : c(context),
        samples(share(context.batch, context.parts, part)),
        memory(workspace + context.packed + part * context.part_workspace) {}
  int64_t rows() const { return samples.end - samples.begin; }
  int64_t position(int64_t step) const { return c.reverse ? c.positions - 1 - step : step; }
  // Offset of row `row` at position t, in units of one position.
  int64_t place(int64_t row, int64_t t) const { return (samples.begin + row) * c.positions + t; }
};

// Copies [samples, width] of the part to rows of leading dimension `stride`, and back.
HM_INLINE void read_state(const ScanPart& p, const float* from, float* to) {
  const int64_t n = p.c.width;
  for (int64_t r = 0; r < p.rows(); ++r)
    for (int64_t u = 0; u < n; u += kWidth)
      store(to + r * p.c.stride + u, load_some(from + (p.samples.begin + r) * n + u, lanes_at(u, n)));
}
HM_INLINE void write_state(const ScanPart& p, const float* from, float* to) {
  const int64_t n = p.c.width;
  for (int64_t r = 0; r < p.rows(); ++r)
    for (int64_t u = 0; u < n; u += kWidth)
      store_some(to + (p.samples.begin + r) * n + u, load(from + r * p.c.stride + u), lanes_at(u, n));
}
HM_INLINE void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}

// Packs forward panels: for each vector of units and each k, a vector of weights per gate; padded with zeros.
template <int kGates>
void pack_units(const RecurrentContext& c, const float* weight, float* packed, uint32_t part) {
  const int64_t n = c.width;
  const Range panels = share((n + kWidth - 1) / kWidth, c.pack_parts, part);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    for (int64_t row = 0; row < kGates * kWidth; ++row) {
      const int64_t unit = panel * kWidth + row % kWidth;
      const float* from = weight + (row / kWidth * n + unit) * n;
      float* to = packed + panel * n * kGates * kWidth + row;
      for (int64_t k = 0; k < n; ++k) to[k * kGates * kWidth] = unit < n ? from[k] : 0.0f;
    }
}

// Packs backward panels of panel_vectors vectors of columns.
HM_INLINE void pack_columns(const RecurrentContext& c, int64_t depth, const float* weight, float* packed,
                            uint32_t part) {
  const int64_t n = c.width, columns = c.panel_vectors * kWidth;
  const Range panels = share((n + columns - 1) / columns, c.pack_parts, part);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t column = panel * columns + j;
        packed[(panel * depth + k) * columns + j] = column < n ? weight[k * n + column] : 0.0f;
      }
}

template <int kVectors>
void product_of_gates(const ScanPart& p, const float* packed, int64_t depth, const float* gates, float* dh, bool add) {
  const RecurrentContext& c = p.c;
  for (int64_t u = 0; u < c.width; u += kVectors * kWidth)
    in_blocks<12 / kVectors>(
        p.rows(), [&](auto n, int64_t row) __attribute__((always_inline)) {
          constexpr int kRows = decltype(n)::value;
          vf sum[kRows][kVectors] = {};
          products(gates + row * c.gate_stride, c.gate_stride, packed + u * depth, depth, sum);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
              float* to = dh + (row + i) * c.stride + u + v * kWidth;
              store(to, add ? load(to) + sum[i][v] : sum[i][v]);
            }
        });
}
// dh = or += gradients of the gates times the weight.
HM_INLINE void carry_back(const ScanPart& p, const float* packed, int64_t depth, const float* gates, float* dh,
                          bool add) {
  if (p.c.panel_vectors == 4)
    product_of_gates<4>(p, packed, depth, gates, dh, add);
  else
    product_of_gates<2>(p, packed, depth, gates, dh, add);
}

}  // namespace

// ---- LSTM

namespace {

constexpr int64_t kLstmGates = 4;  // i f g o

struct LstmForward {
  const ScanPart& part;
  const float *x, *packed;
  float *y, *cells, *gates;  // results
  float* cell;               // cell state of the part's samples

  // Computes kWidth units from `unit` of kRows samples, at position t.
  template <int kRows>
  HM_INLINE void units(const float* before, float* after, int64_t row, int64_t unit, int64_t t) const {
    const int64_t n = part.c.width, stride = part.c.stride, lanes = lanes_at(unit, n);
    vf sum[kRows][kLstmGates] = {};
    products(before + row * stride, stride, packed + unit * n * kLstmGates, n, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const int64_t place = part.place(row + i, t);
      const float* in = x + place * kLstmGates * n + unit;
      float *kept = gates + place * kLstmGates * n + unit, *own = cell + (row + i) * stride + unit;
      const vf in_gate = vlogistic(sum[i][0] + load_some(in, lanes)),
               forget = vlogistic(sum[i][1] + load_some(in + n, lanes)),
               fresh = vtanh(sum[i][2] + load_some(in + 2 * n, lanes)),
               out = vlogistic(sum[i][3] + load_some(in + 3 * n, lanes));
      const vf now = fma(forget, load(own), in_gate * fresh), state = out * vtanh(now);
      store(own, now);
      store(after + (row + i) * stride + unit, state);
      store_some(y + place * n + unit, state, lanes);
      store_some(cells + place * n + unit, now, lanes);
      store_some(kept, in_gate, lanes);
      store_some(kept + n, forget, lanes);
      store_some(kept + 2 * n, fresh, lanes);
      store_some(kept + 3 * n, out, lanes);
    }
  }
};

struct LstmBackward {
  const ScanPart& part;
  const float *cells, *gates, *c0, *dy, *dc;  // dc may be null
  float *dx, *dh, *dcell, *dgates;            // dgates: of the current position, contiguous

  // Computes the gradients of one sample's gate inputs at the position of `step`.
  HM_INLINE void row(int64_t row, int64_t step) const {
    const int64_t n = part.c.width, place = part.place(row, part.position(step));
    const float* before =
        step == 0 ? c0 + (part.samples.begin + row) * n : cells + part.place(row, part.position(step - 1)) * n;
    const float* kept = gates + place * kLstmGates * n;
    float *out = dx + place * kLstmGates * n, *own = dgates + row * part.c.gate_stride;
    for (int64_t u = 0; u < n; u += kWidth) {
      const int64_t k = lanes_at(u, n);
      const vf i = load_some(kept + u, k), f = load_some(kept + n + u, k), g = load_some(kept + 2 * n + u, k),
               o = load_some(kept + 3 * n + u, k);
      const vf here = load_some(dy + place * n + u, k) + load(dh + row * part.c.stride + u);
      const vf squashed = vtanh(load_some(cells + place * n + u, k));
      float* carried = dcell + row * part.c.stride + u;
      vf d = fma(here * o, 1.0f - squashed * squashed, load(carried));
      if (dc) d += load_some(dc + place * n + u, k);
      store(carried, d * f);
      const vf parts[kLstmGates] = {d * g * (i * (1.0f - i)), d * load_some(before + u, k) * (f * (1.0f - f)),
                                    d * i * (1.0f - g * g), here * squashed * (o * (1.0f - o))};
#pragma GCC unroll 4
      for (int64_t p = 0; p < kLstmGates; ++p) {
        store_some(out + p * n + u, parts[p], k);
        store_some(own + p * n + u, parts[p], k);
      }
    }
  }
};

}  // namespace

// x, weight, h0, c0 -> y, c, gates
void lstm_scan(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RecurrentContext*>(context);
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const auto out = [&](uint32_t i) { return static_cast<float*>(buffers[i]); };
  float* packed = out(7);
  if (phase == 0) return pack_units<kLstmGates>(c, in(1), packed, part);
  const ScanPart p(c, packed, part);
  float *before = p.memory, *after = before + c.rows * c.stride, *cell = after + c.rows * c.stride;
  read_state(p, in(2), before);
  read_state(p, in(3), cell);
  const LstmForward f{p, in(0), packed, out(4), out(5), out(6), cell};
  for (int64_t step = 0; step < c.positions; ++step) {
    for (int64_t unit = 0; unit < c.width; unit += kWidth)
      in_blocks<kTile / kLstmGates>(
          p.rows(), [&](auto n, int64_t row) __attribute__((always_inline)) {
            f.units<decltype(n)::value>(before, after, row, unit, p.position(step));
          });
    float* const former = before;
    before = after;
    after = former;
  }
}

// weight, c, gates, c0, dy, [dc] -> dx, dh0, dc0
void lstm_scan_grad(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RecurrentContext*>(context);
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const uint32_t inputs = c.has_dcell ? 6 : 5;
  const auto out = [&](uint32_t i) { return static_cast<float*>(buffers[inputs + i]); };
  float* packed = out(3);
  const int64_t depth = kLstmGates * c.width;
  if (phase == 0) return pack_columns(c, depth, in(0), packed, part);
  const ScanPart p(c, packed, part);
  float *dh = p.memory, *dcell = dh + c.rows * c.stride, *dgates = dcell + c.rows * c.stride;
  clear(dh, 2 * c.rows * c.stride);
  const LstmBackward b{p, in(1), in(2), in(3), in(4), c.has_dcell ? in(5) : nullptr, out(0), dh, dcell, dgates};
  for (int64_t step = c.positions - 1; step >= 0; --step) {
    for (int64_t row = 0; row < p.rows(); ++row) b.row(row, step);
    carry_back(p, packed, depth, dgates, dh, false);
  }
  write_state(p, dh, out(1));
  write_state(p, dcell, out(2));
}

// ---- GRU

namespace {

constexpr int64_t kGruGates = 3;  // r z n
constexpr int64_t kKept = 4;      // r z n q

struct GruForward {
  const ScanPart& part;
  const float *x, *packed, *bias;
  float *y, *gates;  // results

  template <int kRows>
  HM_INLINE void units(const float* before, float* after, int64_t row, int64_t unit, int64_t t) const {
    const int64_t n = part.c.width, stride = part.c.stride, lanes = lanes_at(unit, n);
    vf sum[kRows][kGruGates];
#pragma GCC unroll 8
    for (int g = 0; g < kGruGates; ++g) {
      const vf start = load_some(bias + g * n + unit, lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][g] = start;
    }
    products(before + row * stride, stride, packed + unit * n * kGruGates, n, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const int64_t place = part.place(row + i, t), at = (row + i) * stride + unit;
      const float* in = x + place * kGruGates * n + unit;
      float* kept = gates + place * kKept * n + unit;
      const vf reset = vlogistic(sum[i][0] + load_some(in, lanes)),
               keep = vlogistic(sum[i][1] + load_some(in + n, lanes)), past = sum[i][2],
               fresh = vtanh(fma(reset, past, load_some(in + 2 * n, lanes)));
      const vf state = fma(keep, load(before + at) - fresh, fresh);
      store(after + at, state);
      store_some(y + place * n + unit, state, lanes);
      store_some(kept, reset, lanes);
      store_some(kept + n, keep, lanes);
      store_some(kept + 2 * n, fresh, lanes);
      store_some(kept + 3 * n, past, lanes);
    }
  }
};

struct GruBackward {
  const ScanPart& part;
  const float *y, *gates, *h0, *dy;
  float *dx, *dpast, *dh, *dgates;  // dgates: of the current position, contiguous, for the product with the weight

  HM_INLINE void row(int64_t row, int64_t step) const {
    const int64_t n = part.c.width, place = part.place(row, part.position(step));
    const float* before =
        step == 0 ? h0 + (part.samples.begin + row) * n : y + part.place(row, part.position(step - 1)) * n;
    const float* kept = gates + place * kKept * n;
    float *to_x = dx + place * kGruGates * n, *to_past = dpast + place * kGruGates * n,
          *own = dgates + row * part.c.gate_stride;
    for (int64_t u = 0; u < n; u += kWidth) {
      const int64_t k = lanes_at(u, n);
      const vf r = load_some(kept + u, k), z = load_some(kept + n + u, k), fresh = load_some(kept + 2 * n + u, k),
               past = load_some(kept + 3 * n + u, k);
      float* carried = dh + row * part.c.stride + u;
      const vf here = load_some(dy + place * n + u, k) + load(carried);
      store(carried, here * z);
      const vf dfresh = here * (1.0f - z) * (1.0f - fresh * fresh);
      const vf dkeep = here * (load_some(before + u, k) - fresh) * (z * (1.0f - z));
      const vf dreset = dfresh * past * (r * (1.0f - r));
      const vf of_x[kGruGates] = {dreset, dkeep, dfresh}, of_past[kGruGates] = {dreset, dkeep, dfresh * r};
#pragma GCC unroll 4
      for (int64_t p = 0; p < kGruGates; ++p) {
        store_some(to_x + p * n + u, of_x[p], k);
        store_some(to_past + p * n + u, of_past[p], k);
        store_some(own + p * n + u, of_past[p], k);
      }
    }
  }
};

}  // namespace

// x, weight, bias, h0 -> y, gates
void gru_scan(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RecurrentContext*>(context);
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const auto out = [&](uint32_t i) { return static_cast<float*>(buffers[i]); };
  float* packed = out(6);
  if (phase == 0) return pack_units<kGruGates>(c, in(1), packed, part);
  const ScanPart p(c, packed, part);
  float *before = p.memory, *after = before + c.rows * c.stride;
  read_state(p, in(3), before);
  const GruForward f{p, in(0), packed, in(2), out(4), out(5)};
  for (int64_t step = 0; step < c.positions; ++step) {
    for (int64_t unit = 0; unit < c.width; unit += kWidth)
      in_blocks<kTile / kGruGates>(
          p.rows(), [&](auto n, int64_t row) __attribute__((always_inline)) {
            f.units<decltype(n)::value>(before, after, row, unit, p.position(step));
          });
    float* const former = before;
    before = after;
    after = former;
  }
}

// weight, y, gates, h0, dy -> dx, dpast, dh0
void gru_scan_grad(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RecurrentContext*>(context);
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const auto out = [&](uint32_t i) { return static_cast<float*>(buffers[5 + i]); };
  float* packed = out(3);
  const int64_t depth = kGruGates * c.width;
  if (phase == 0) return pack_columns(c, depth, in(0), packed, part);
  const ScanPart p(c, packed, part);
  float *dh = p.memory, *dgates = dh + 2 * c.rows * c.stride;
  clear(dh, c.rows * c.stride);
  const GruBackward b{p, in(1), in(2), in(3), in(4), out(0), out(1), dh, dgates};
  for (int64_t step = c.positions - 1; step >= 0; --step) {
    for (int64_t row = 0; row < p.rows(); ++row) b.row(row, step);
    carry_back(p, packed, depth, dgates, dh, true);
  }
  write_state(p, dh, out(2));
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(lstm_scan)
HM_VECTOR_CODE(lstm_scan_grad)
HM_VECTOR_CODE(gru_scan)
HM_VECTOR_CODE(gru_scan_grad)

namespace harmonics::cpu {
namespace {

// Panels, vectors and rows have the sizes of the widest instruction set.
constexpr int64_t kMostLanes = 16, kMostPanel = 4 * kMostLanes;

int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Divides samples, which are independent, among threads; positions are sequential.
void divide(RecurrentContext& c, int64_t gates, bool gradient) {
  const double state = static_cast<double>(c.width), each = static_cast<double>(c.batch * c.positions);
  const double nanoseconds = each * (static_cast<double>(gates) * state * state / 35 + state * (gradient ? 4 : 6));
  c.parts = parts_for(nanoseconds, c.batch / 8);
  c.rows = (c.batch + c.parts - 1) / c.parts;
  c.pack_parts = parts_for(0.3 * static_cast<double>(gates) * state * state, (c.width + kMostPanel - 1) / kMostPanel);
}

uint64_t bytes(const RecurrentContext& c) {
  return static_cast<uint64_t>(c.packed + c.part_workspace * c.parts) * sizeof(float);
}

bool plan_scan(const Site& site, hx_kernel& out, int64_t gates) {
  const hx_type& x = site.in(0);
  auto c = std::make_unique<RecurrentContext>();
  c->batch = x.dims[0];
  c->positions = x.dims[1];
  c->width = site.in(1).dims[1];
  c->reverse = site.flag("reverse");
  divide(*c, gates, false);
  c->packed = rounded(c->width, kMostLanes) * gates * c->width;
  c->stride = rounded(c->width, kMostLanes) + kMostLanes;  // not a power of two: rows would share cache sets
  c->part_workspace = 3 * c->rows * c->stride;             // previous state, next state, cell
  const std::vector<uint32_t> parts{c->pack_parts, c->parts};
  const uint64_t workspace = bytes(*c);
  answer(out, std::move(c), gates == 4 ? chosen::lstm_scan() : chosen::gru_scan(), gates == 4 ? "lstm" : "gru", parts)
      .workspace = workspace;
  return true;
}

bool plan_scan_grad(const Site& site, hx_kernel& out, int64_t gates) {
  const hx_type& y = site.in(1);
  auto c = std::make_unique<RecurrentContext>();
  c->batch = y.dims[0];
  c->positions = y.dims[1];
  c->width = y.dims[2];
  c->reverse = site.flag("reverse");
  c->has_dcell = gates == 4 && site.inputs() == 6;
  divide(*c, gates, true);
  c->panel_vectors = c->rows <= 3 ? 4 : 2;
  c->packed = rounded(c->width, kMostPanel) * gates * c->width;
  c->stride = rounded(c->width, kMostPanel) + kMostLanes;
  c->gate_stride = rounded(gates * c->width, kMostLanes) + kMostLanes;
  c->part_workspace = c->rows * (2 * c->stride + c->gate_stride);
  const std::vector<uint32_t> parts{c->pack_parts, c->parts};
  const uint64_t workspace = bytes(*c);
  answer(out, std::move(c), gates == 4 ? chosen::lstm_scan_grad() : chosen::gru_scan_grad(),
         gates == 4 ? "lstm gradient" : "gru gradient", parts)
      .workspace = workspace;
  return true;
}

bool plan_recurrent(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return false;
  const bool lstm = site.op().substr(0, 4) == "lstm";
  if (!site.op().ends_with("_grad")) return plan_scan(site, out, lstm ? 4 : 3);
  // Sites with gradients of the gates are unsupported: only tests create them.
  return site.inputs() <= (lstm ? 6u : 5u) && plan_scan_grad(site, out, lstm ? 4 : 3);
}

}  // namespace

HM_PLANS(recurrent, {"lstm_scan", plan_recurrent}, {"lstm_scan_grad", plan_recurrent}, {"gru_scan", plan_recurrent},
         {"gru_scan_grad", plan_recurrent})

}  // namespace harmonics::cpu

#endif
