#include "kernels.hpp"
#include "recurrent.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kGates = 3;  // r z n
constexpr int64_t kKept = 4;   // r z n q

struct GruForward {
  const ScanPart& part;
  const float *x, *packed, *bias;
  float *y, *gates;  // results

  template <int kRows>
  HM_INLINE void units(const float* before, float* after, int64_t row, int64_t unit, int64_t t) const {
    const int64_t n = part.c.width, stride = part.c.stride, lanes = lanes_at(unit, n);
    vf sum[kRows][kGates];
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) {
      const vf start = load_some(bias + g * n + unit, lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][g] = start;
    }
    products(before + row * stride, stride, packed + unit * n * kGates, n, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const int64_t place = part.place(row + i, t), at = (row + i) * stride + unit;
      const float* in = x + place * kGates * n + unit;
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
    float *to_x = dx + place * kGates * n, *to_past = dpast + place * kGates * n,
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
      const vf of_x[kGates] = {dreset, dkeep, dfresh}, of_past[kGates] = {dreset, dkeep, dfresh * r};
#pragma GCC unroll 4
      for (int64_t p = 0; p < kGates; ++p) {
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
  if (phase == 0) return pack_units<kGates>(c, in(1), packed, part);
  const ScanPart p(c, packed, part);
  float *before = p.memory, *after = before + c.rows * c.stride;
  read_state(p, in(3), before);
  const GruForward f{p, in(0), packed, in(2), out(4), out(5)};
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

// weight, y, gates, h0, dy -> dx, dpast, dh0
void gru_scan_grad(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const RecurrentContext*>(context);
  const auto in = [&](uint32_t i) { return static_cast<const float*>(buffers[i]); };
  const auto out = [&](uint32_t i) { return static_cast<float*>(buffers[5 + i]); };
  float* packed = out(3);
  const int64_t depth = kGates * c.width;
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
