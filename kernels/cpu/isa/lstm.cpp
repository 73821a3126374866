#include "kernels.hpp"
#include "recurrent.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kGates = 4;  // i f g o

struct LstmForward {
  const ScanPart& part;
  const float *x, *packed;
  float *y, *cells, *gates;  // results
  float* cell;               // cell state of the part's samples

  // Computes kWidth units from `unit` of kRows samples, at position t.
  template <int kRows>
  HM_INLINE void units(const float* before, float* after, int64_t row, int64_t unit, int64_t t) const {
    const int64_t n = part.c.width, stride = part.c.stride, lanes = lanes_at(unit, n);
    vf sum[kRows][kGates] = {};
    products(before + row * stride, stride, packed + unit * n * kGates, n, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const int64_t place = part.place(row + i, t);
      const float* in = x + place * kGates * n + unit;
      float *kept = gates + place * kGates * n + unit, *own = cell + (row + i) * stride + unit;
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
    const float* kept = gates + place * kGates * n;
    float *out = dx + place * kGates * n, *own = dgates + row * part.c.gate_stride;
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
      const vf parts[kGates] = {d * g * (i * (1.0f - i)), d * load_some(before + u, k) * (f * (1.0f - f)),
                                d * i * (1.0f - g * g), here * squashed * (o * (1.0f - o))};
#pragma GCC unroll 4
      for (int64_t p = 0; p < kGates; ++p) {
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
  if (phase == 0) return pack_units<kGates>(c, in(1), packed, part);
  const ScanPart p(c, packed, part);
  float *before = p.memory, *after = before + c.rows * c.stride, *cell = after + c.rows * c.stride;
  read_state(p, in(2), before);
  read_state(p, in(3), cell);
  const LstmForward f{p, in(0), packed, out(4), out(5), out(6), cell};
  for (int64_t step = 0; step < c.positions; ++step) {
    for (int64_t unit = 0; unit < c.width; unit += kWidth)
      in_blocks<kTile / kGates>(
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
  const int64_t depth = kGates * c.width;
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

}  // namespace harmonics::cpu::HM_ISA
