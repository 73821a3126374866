// Row-wise kernels: softmax, log_softmax and softmax losses.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct RowsContext {
  int64_t rows, columns;
  uint32_t parts;
  uint32_t index_dtype;  // of labels
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <harmonics/abi.h>

#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Returns the maximum of a row. Ignores NaN, which the exponentials propagate.
float row_max(const float* x, int64_t n) {
  vf m[4] = {splat(-kInfinity), splat(-kInfinity), splat(-kInfinity), splat(-kInfinity)};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) m[k] = vmax(load(x + i + k * kWidth), m[k]);
  for (; i + kWidth <= n; i += kWidth) m[0] = vmax(load(x + i), m[0]);
  if (i < n) m[0] = vmax(first(load_part(x + i, n - i), n - i, m[0]), m[0]);
  return max_of(vmax(vmax(m[0], m[1]), vmax(m[2], m[3])));
}

// Returns the sum of exp(x - shift). kStore: stores the terms in y.
template <bool kStore>
HM_INLINE float sum_of_exponentials(const float* x, float* y, float shift, int64_t n) {
  vf sum{}, other{};
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    const vf e = vexp(load(x + i) - shift), f = vexp(load(x + i + kWidth) - shift);
    if (kStore) store(y + i, e), store(y + i + kWidth, f);
    sum += e;
    other += f;
  }
  sum += other;
  for (; i + kWidth <= n; i += kWidth) {
    const vf e = vexp(load(x + i) - shift);
    if (kStore) store(y + i, e);
    sum += e;
  }
  if (i < n) {
    const vf e = vexp(load_part(x + i, n - i) - shift);
    if (kStore) store_part(y + i, e, n - i);
    sum += first(e, n - i, vf{});
  }
  return sum_of(sum);
}

float vector_log(float x) { return vlog(splat(x))[0]; }

// Computes the maximum of a row and the logarithm of the sum of exponentials relative to it.
void log_sum_exp(const float* x, int64_t n, float& shift, float& log_sum) {
  shift = row_max(x, n);
  log_sum = vector_log(sum_of_exponentials<false>(x, nullptr, shift, n));
}

// Likewise for kRows rows of at most one vector each, to overlap their latencies.
template <int kRows>
HM_INLINE void log_sums_exp(const float* x, int64_t n, float* shifts, float* log_sums) {
  vf row[kRows], sums = splat(1);
  float shift[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) row[r] = first(load_some(x + r * n, n), n, splat(-kInfinity));
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) shift[r] = max_of(vmax(row[r], splat(-kInfinity)));
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) row[r] = first(vexp(row[r] - shift[r]), n, vf{});
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = sum_of(row[r]);
  sums = vlog(sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) shifts[r] = shift[r], log_sums[r] = sums[r];
}

template <typename F>
HM_INLINE void map_row(float* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, f(i, kWidth));
  if (i < n) store_part(y + i, f(i, n - i), n - i);
}

int64_t label_at(const void* labels, uint32_t dtype, int64_t i) {
  if (dtype == HX_I64) return static_cast<const int64_t*>(labels)[i];
  if (dtype == HX_I32) return static_cast<const int32_t*>(labels)[i];
  return static_cast<const uint8_t*>(labels)[i];
}

}  // namespace

void softmax(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RowsContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * c.columns;
    float* y = static_cast<float*>(buffers[1]) + r * c.columns;
    const float sum = sum_of_exponentials<true>(x, y, row_max(x, c.columns), c.columns);
    const float share_of_one = 1.0f / sum;
    map_row(y, c.columns, [&](int64_t i, int64_t n) { return load_some(y + i, n) * share_of_one; });
  }
}

void log_softmax(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RowsContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * c.columns;
    float* y = static_cast<float*>(buffers[1]) + r * c.columns;
    const float shift = row_max(x, c.columns);
    const float log_sum = vector_log(sum_of_exponentials<false>(x, nullptr, shift, c.columns));
    map_row(y, c.columns, [&](int64_t i, int64_t n) { return load_some(x + i, n) - shift - log_sum; });
  }
}

void softmax_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RowsContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* y = static_cast<const float*>(buffers[0]) + r * c.columns;
    const float* dy = static_cast<const float*>(buffers[1]) + r * c.columns;
    vf sum{};
    for (int64_t i = 0; i < c.columns; i += kWidth) {
      const int64_t n = c.columns - i < kWidth ? c.columns - i : kWidth;
      sum += load_some(y + i, n) * load_some(dy + i, n);
    }
    const float inner = sum_of(sum);
    float* dx = static_cast<float*>(buffers[2]) + r * c.columns;
    map_row(dx, c.columns, [&](int64_t i, int64_t n) { return load_some(y + i, n) * (load_some(dy + i, n) - inner); });
  }
}

void log_softmax_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RowsContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* y = static_cast<const float*>(buffers[0]) + r * c.columns;
    const float* dy = static_cast<const float*>(buffers[1]) + r * c.columns;
    vf sum{};
    for (int64_t i = 0; i < c.columns; i += kWidth)
      sum += load_some(dy + i, c.columns - i < kWidth ? c.columns - i : kWidth);
    const float total = sum_of(sum);
    float* dx = static_cast<float*>(buffers[2]) + r * c.columns;
    map_row(dx, c.columns,
            [&](int64_t i, int64_t n) { return load_some(dy + i, n) - vexp(load_some(y + i, n)) * total; });
  }
}

// A label out of range has probability 0, so its loss is infinite. Shift and logarithm are subtracted from the label's
// logit one after the other, so that large logits lose no precision.
void softmax_cross_entropy(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RowsContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  const float* x = static_cast<const float*>(buffers[0]);
  float *loss = static_cast<float*>(buffers[2]), *lse = static_cast<float*>(buffers[3]);
  int64_t r = rows.begin;
  if (c.columns <= kWidth)
    for (; r + 4 <= rows.end; r += 4) log_sums_exp<4>(x + r * c.columns, c.columns, lse + r, loss + r);
  for (; r < rows.end; ++r) log_sum_exp(x + r * c.columns, c.columns, lse[r], loss[r]);
  for (r = rows.begin; r < rows.end; ++r) {
    const int64_t label = label_at(buffers[1], c.index_dtype, r);
    const float shift = lse[r], log_sum = loss[r];
    loss[r] = label >= 0 && label < c.columns ? log_sum + (shift - x[r * c.columns + label]) : kInfinity;
    lse[r] = log_sum + shift;
  }
}

// Exponentials relative to lse are divided by their sum, which cancels the rounding error of lse.
void softmax_cross_entropy_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RowsContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  const vi place = lanes();
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * c.columns;
    const int64_t label = label_at(buffers[1], c.index_dtype, r);
    const float lse = static_cast<const float*>(buffers[2])[r], dloss = static_cast<const float*>(buffers[3])[r];
    float* dx = static_cast<float*>(buffers[4]) + r * c.columns;
    const auto gradient = [&](vf e, float share_of_one, int64_t i, int64_t n) __attribute__((always_inline)) {
      const vf p = e * share_of_one;
      const int64_t within = label - i;
      if (within < 0 || within >= n) return p * dloss;
      return choose(place == static_cast<int32_t>(within), p - 1.0f, p) * dloss;
    };
    if (c.columns <= kWidth) {
      const vf e = first(vexp(load_some(x, c.columns) - lse), c.columns, vf{});
      store_some(dx, gradient(e, 1.0f / sum_of(e), 0, c.columns), c.columns);
      continue;
    }
    const float share_of_one = 1.0f / sum_of_exponentials<true>(x, dx, lse, c.columns);
    map_row(dx, c.columns, [&](int64_t i, int64_t n) { return gradient(load_some(dx + i, n), share_of_one, i, n); });
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(softmax)
HM_VECTOR_CODE(log_softmax)
HM_VECTOR_CODE(softmax_grad)
HM_VECTOR_CODE(log_softmax_grad)
HM_VECTOR_CODE(softmax_cross_entropy)
HM_VECTOR_CODE(softmax_cross_entropy_grad)

namespace harmonics::cpu {
namespace {

std::unique_ptr<RowsContext> rows_of(const hx_type& x, double nanoseconds) {
  auto c = std::make_unique<RowsContext>();
  c->columns = last(x);
  c->rows = count(x) / c->columns;
  c->parts = parts_for_rows(nanoseconds * static_cast<double>(count(x)) + 10.0 * static_cast<double>(c->rows), c->rows);
  return c;
}

bool plan_softmax(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.in(0).rank == 0) return false;
  const bool gradient = site.inputs() == 2, logarithm = site.op().substr(0, 3) == "log";
  auto c = rows_of(site.in(0), 1.2);
  answer(out, std::move(c),
         gradient    ? (logarithm ? chosen::log_softmax_grad() : chosen::softmax_grad())
         : logarithm ? chosen::log_softmax()
                     : chosen::softmax(),
         logarithm ? "log softmax" : "softmax")
      .in_place = gradient ? 3 : 1;
  return true;
}

bool plan_softmax_cross_entropy(const Site& site, hx_kernel& out) {
  const bool gradient = site.inputs() == 4;
  if (!is_f32(site.in(0)) || !is_index(site.in(1)) || !is_f32(site.out())) return false;
  auto c = rows_of(site.in(0), 1.0);
  c->index_dtype = site.in(1).dtype;
  answer(out, std::move(c), gradient ? chosen::softmax_cross_entropy_grad() : chosen::softmax_cross_entropy(),
         "softmax cross entropy")
      .in_place = gradient ? 1 : 0;
  return true;
}

}  // namespace

HM_PLANS(softmax, {"softmax", plan_softmax}, {"log_softmax", plan_softmax}, {"softmax_grad", plan_softmax},
         {"log_softmax_grad", plan_softmax}, {"softmax_cross_entropy", plan_softmax_cross_entropy},
         {"softmax_cross_entropy_grad", plan_softmax_cross_entropy})

}  // namespace harmonics::cpu

#endif
