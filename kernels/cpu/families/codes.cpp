// The largest magnitude of rows (abs_max), and normalised rows quantised with a scale per row (rms_norm_quantize).
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct CodesContext {
  int64_t rows, columns;
  uint32_t parts;
  float epsilon;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "row_sum.hpp"

namespace harmonics::cpu::HM_ISA {

namespace {

// Returns the largest f(offset, lanes) of a row, at least 0; NaN if any is NaN. f must return 0 in missing lanes.
template <typename F>
HM_INLINE float largest_of_row(int64_t n, F f) {
  vf most{};
  for (int64_t i = 0; i < n; i += kWidth) most = maximum(f(i, lanes_at(i, n)), most);
  const vf odd = choose(most != most, most, vf{});
  for (int32_t lane = 0; lane < kWidth; ++lane)
    if (odd[lane] != odd[lane]) return odd[lane];
  return max_of(most);
}

}  // namespace

// x -> m
void row_abs_max(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const CodesContext*>(context);
  float* m = static_cast<float*>(buffers[1]);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * c.columns;
    m[r] = largest_of_row(c.columns, [&](int64_t i, int64_t k) { return first(vabs(load_some(x + i, k)), k, vf{}); });
  }
}

// x, gain -> codes, scale
void row_norm_codes(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const CodesContext*>(context);
  const float* gain = static_cast<const float*>(buffers[1]);
  float* scales = static_cast<float*>(buffers[3]);
  const int64_t n = c.columns;
  const float one_share = 1.0f / static_cast<float>(n);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * n;
    int8_t* codes = static_cast<int8_t*>(buffers[2]) + r * n;
    const auto squared = [&](int64_t i, int64_t k) {
      const vf v = first(load_some(x + i, k), k, vf{});
      return v * v;
    };
    const float rstd = 1.0f / scalar_sqrt(sum_row(n, squared) * one_share + c.epsilon);
    const float most = largest_of_row(n, [&](int64_t i, int64_t k) {
      return first(vabs(load_some(x + i, k) * rstd * load_some(gain + i, k)), k, vf{});
    });
    const float scale = (most < 1e-30f ? 1e-30f : most) / 127.0f;
    scales[r] = scale;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      float steps = __builtin_nearbyintf(x[i] * rstd * gain[i] / scale);
      steps = steps != steps ? 0.0f : steps < -128.0f ? -128.0f : steps > 127.0f ? 127.0f : steps;
      codes[i] = static_cast<int8_t>(static_cast<int32_t>(steps));
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(row_abs_max)
HM_VECTOR_CODE(row_norm_codes)

namespace harmonics::cpu {
namespace {

bool plan_codes(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!is_f32(x) || x.rank == 0) return false;
  const bool norm = site.op() == "rms_norm_quantize";
  if (norm && (!is_f32(site.in(1)) || site.out(0).dtype != HX_I8)) return declined("quantises f32 to i8");
  if (!norm && site.integer("rows", 0) == 0) return declined("finds the largest magnitude of each row");
  auto c = std::make_unique<CodesContext>();
  c->columns = x.dims[x.rank - 1];
  if (c->columns == 0) return false;
  c->rows = count(x) / c->columns;
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  c->parts = parts_for(static_cast<double>(count(x)) * (norm ? 0.8 : 0.3), c->rows);
  answer(out, std::move(c), norm ? chosen::row_norm_codes() : chosen::row_abs_max(),
         norm ? "rms norm to codes" : "row magnitude");
  return true;
}

}  // namespace

HM_PLANS(codes, {"abs_max", plan_codes}, {"rms_norm_quantize", plan_codes})

}  // namespace harmonics::cpu

#endif
