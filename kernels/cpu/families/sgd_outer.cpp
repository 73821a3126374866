// SGD steps of an affine map's weight (the functional sgd_outer). A step for a single sample skips rows whose gradient
// is zero. Optimizers that change every row in every step have separate kernels (optimizer.cpp).
#include "../family.hpp"
#include "../product_costs.hpp"
#include "../rounded_product.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

// w = w - rate a b^T for a single sample, and the gradient of a with respect to the old w.
struct OuterContext {
  enum Gradient { none, all, active };
  int64_t rows, columns;  // of w
  Gradient gradient;
  uint32_t parts;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <type_traits>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Updates kRows rows: new = w - x b; kGradient: also sums w b. b is read once for all rows.
template <int kRows, bool kGradient>
HM_INLINE void step_rows(const float* const* row, float* const* to, const float* x, const float* b, int64_t n,
                         float* gradient) {
  vf sum[kRows][2] = {}, factor[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) factor[r] = splat(x[r]);
  const auto step = [&](int64_t j, int half) __attribute__((always_inline)) {
    const vf y = load(b + j);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const vf old = load(row[r] + j);
      if (kGradient) sum[r][half] = fma(old, y, sum[r][half]);
      store(to[r] + j, old - factor[r] * y);
    }
  };
  int64_t j = 0;
  for (; j + 2 * kWidth <= n; j += 2 * kWidth) step(j, 0), step(j + kWidth, 1);
  if (j + kWidth <= n) step(j, 0), j += kWidth;
  float rest[kRows] = {};
  for (; j < n; ++j)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float old = row[r][j];
      if (kGradient) rest[r] += old * b[j];
      to[r][j] = old - x[r] * b[j];
    }
  if (kGradient)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) gradient[r] = sum_of(sum[r][0] + sum[r][1]) + rest[r];
}

// Collects active rows and updates four at a time, which share the reads of b.
template <bool kGradient>
HM_INLINE void step_active_rows(const OuterContext& c, Range rows, const float* w, const float* a, const float* b,
                                float rate, float* to, float* gradient) {
  constexpr int kRows = 4;
  const float* from[kRows];
  float* into[kRows];
  float x[kRows], gradients[kRows];
  int64_t which[kRows];
  int waiting = 0;
  const auto run = [&](auto count) __attribute__((always_inline)) {
    step_rows<decltype(count)::value, kGradient>(from, into, x, b, c.columns, gradients);
    if (kGradient)
      for (int r = 0; r < decltype(count)::value; ++r)
        gradient[which[r]] = c.gradient == OuterContext::all || !(a[which[r]] <= 0) ? gradients[r] : 0;
    waiting = 0;
  };
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    if (a[i] == 0 && w == to && (!kGradient || c.gradient == OuterContext::active)) {
      if (kGradient) gradient[i] = 0;
      continue;
    }
    from[waiting] = w + i * c.columns;
    into[waiting] = to + i * c.columns;
    x[waiting] = rate * a[i];
    which[waiting++] = i;
    if (waiting == kRows) run(std::integral_constant<int, kRows>{});
  }
  const int left = waiting;
  for (int r = 0; r < left; ++r) {
    from[0] = from[r], into[0] = into[r], x[0] = x[r], which[0] = which[r];
    run(std::integral_constant<int, 1>{});
  }
}

}  // namespace

// w, a, b, lr -> w, gradient?
void sgd_outer(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OuterContext*>(context);
  const float *w = static_cast<const float*>(buffers[0]), *a = static_cast<const float*>(buffers[1]),
              *b = static_cast<const float*>(buffers[2]);
  const float rate = *static_cast<const float*>(buffers[3]);
  float* to = static_cast<float*>(buffers[4]);
  const Range rows = share(c.rows, c.parts, part);
  if (c.gradient != OuterContext::none)
    step_active_rows<true>(c, rows, w, a, b, rate, to, static_cast<float*>(buffers[5]));
  else
    step_active_rows<false>(c, rows, w, a, b, rate, to, nullptr);
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(sgd_outer)

namespace harmonics::cpu {
namespace {

// w [m, n], a [..., m], b [..., n], lr -> w - lr a^T b, gradient?
bool plan_sgd_outer(const Site& site, hx_kernel& out) {
  const auto scale = site.scale_of(1);
  if (!scale || count(site.in(3)) != 1) return false;
  const int64_t m = site.in(0).dims[0], n = site.in(0).dims[1], k = count(site.in(1)) / m;
  const std::string gradient = site.text("input_gradient");
  if (site.outputs() != (gradient.empty() ? 1u : 2u)) return false;
  if (k == 1) {
    if (*scale != 0) return false;
    auto c = std::make_unique<OuterContext>();
    c->rows = m;
    c->columns = n;
    c->gradient = gradient.empty() ? OuterContext::none : gradient == "all" ? OuterContext::all : OuterContext::active;
    c->parts =
        site.is_cold()
            ? parts_for(static_cast<double>(m * n) * product_costs::kReadNanoseconds, m, product_costs::kReadGrain)
            : parts_for(static_cast<double>(m * n) * 0.02, m);  // a low cost, since most rows are skipped
    answer(out, std::move(c), chosen::sgd_outer(), "outer product and sgd").in_place = 1;
    return true;
  }
  Product p{1, m, n, k, 1, m, n, 1, 1, 2, 4, 0, false, 0};
  p.half = site.allows_half();
  p.bf16 = site.allows_bf16();
  const RoundedRoutines* const rounding = rounding_of(p);
  if (rounding && rounding->most_nonzeros == 0) return declined("steps of products that never skip zeros");
  p.scale = *scale;
  p.old = 0, p.rate = 3;
  if (!gradient.empty() || !answer_sparse_descent(p, out)) return false;
  out.in_place = 1;
  return true;
}

}  // namespace

HM_PLANS(sgd_outer, {"sgd_outer", plan_sgd_outer})

}  // namespace harmonics::cpu

#endif
