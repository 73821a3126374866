#include "../optimizer.hpp"

#include "kernels.hpp"
#include "update_rules.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Elements of w, its gradient and its moments in a row.
template <typename Rule>
struct Elements {
  const float *w, *g, *old[Rule::kMoments + 1];
  float *new_w, *now[Rule::kMoments + 1];
  HM_INLINE void step(const Rule& rule, int64_t i, int64_t n) const {
    vf moments[Rule::kMoments + 1];
    for (int k = 0; k < Rule::kMoments; ++k) moments[k] = load_some(old[k] + i, n);
    const vf weight = rule.step(load_some(w + i, n), load_some(g + i, n), moments);
    for (int k = 0; k < Rule::kMoments; ++k) store_some(now[k] + i, moments[k], n);
    store_some(new_w + i, weight, n);
  }
};

// w, g, moments..., lr, [step] -> w, moments...
template <typename Rule>
HM_INLINE void update_part(const OptimizerContext& c, void* const* buffers, uint32_t part) {
  constexpr int kMoments = Rule::kMoments, kLr = 2 + kMoments;
  const int kOut = kLr + (c.counts_steps ? 2 : 1);
  Elements<Rule> all{};
  all.w = static_cast<const float*>(buffers[0]), all.g = static_cast<const float*>(buffers[1]);
  all.new_w = static_cast<float*>(buffers[kOut]);
  for (int k = 0; k < kMoments; ++k)
    all.old[k] = static_cast<const float*>(buffers[2 + k]), all.now[k] = static_cast<float*>(buffers[kOut + 1 + k]);
  const Rule rule(c, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  // Parts begin at whole vectors.
  const Range vectors = share((c.count + kWidth - 1) / kWidth, c.parts, part);
  const int64_t end = vectors.end * kWidth < c.count ? vectors.end * kWidth : c.count;
  for (int64_t i = vectors.begin * kWidth; i < end; i += kWidth) all.step(rule, i, lanes_at(i, end));
}

// One row of w for a single sample: the gradient of the weights is x b. Returns the sum of w b, with the old w.
template <typename Rule, bool kGradient>
HM_INLINE float update_row(const Rule& rule, const float* w, float* new_w, const float* const* old, float* const* now,
                           float x, const float* b, int64_t n) {
  vf sum{};
  const auto step = [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
    vf moments[Rule::kMoments + 1];
    for (int k = 0; k < Rule::kMoments; ++k) moments[k] = load_some(old[k] + j, lanes);
    const vf weight = load_some(w + j, lanes), y = load_some(b + j, lanes);
    if (kGradient) sum = fma(weight, y, sum);
    const vf next = rule.step(weight, x * y, moments);
    for (int k = 0; k < Rule::kMoments; ++k) store_some(now[k] + j, moments[k], lanes);
    store_some(new_w + j, next, lanes);
  };
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) step(j, kWidth);
  if (j < n) step(j, n - j);
  return kGradient ? sum_of(sum) : 0;
}

// A block of rows whose gradient lies in the first-level cache, for rows that do not end with a whole vector: their
// vectors would cross cache lines in every operand.
constexpr int64_t kBlockFloats = 2048;
HM_INLINE int64_t rows_of_block(int64_t columns) {
  int64_t rows = 1;
  while (rows * columns % kWidth != 0) rows *= 2;
  return rows == 1 ? 1 : kBlockFloats / (rows * columns) * rows;  // 0: too long
}

// The factored gradient x b of one row; returns the sum of w b.
template <bool kGradient>
HM_INLINE float multiply_row(const float* w, float x, const float* b, float* g, int64_t n) {
  vf sum{};
  const auto step = [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
    const vf y = load_some(b + j, lanes);
    if (kGradient) sum = fma(load_some(w + j, lanes), y, sum);
    store_some(g + j, x * y, lanes);
  };
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) step(j, kWidth);
  if (j < n) step(j, n - j);
  return kGradient ? sum_of(sum) : 0;
}

template <typename Rule, bool kGradient>
HM_INLINE void update_rows(const OuterUpdateContext& c, void* const* buffers, uint32_t part) {
  constexpr int kMoments = Rule::kMoments, kLr = 3 + kMoments;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const int64_t columns = c.columns;
  const float *w = static_cast<const float*>(buffers[0]), *a = static_cast<const float*>(buffers[1]),
              *b = static_cast<const float*>(buffers[2]);
  float *new_w = static_cast<float*>(buffers[kOut]),
        *gradient = kGradient ? static_cast<float*>(buffers[kOut + 1 + kMoments]) : nullptr;
  const auto old = [&](int k, int64_t at) __attribute__((always_inline)) {
    return static_cast<const float*>(buffers[3 + k]) + at;
  };
  const auto now = [&](int k, int64_t at) __attribute__((always_inline)) {
    return static_cast<float*>(buffers[kOut + 1 + k]) + at;
  };
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const auto keep_sum = [&](int64_t i, float sum) __attribute__((always_inline)) {
    if (kGradient) gradient[i] = c.active && a[i] <= 0 ? 0 : sum;
  };
  const int64_t each = rows_of_block(columns);
  if (each <= 1) {
    const Range rows = share(c.rows, c.parts, part);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t at = i * columns;
      const float* from[kMoments + 1];
      float* to[kMoments + 1];
      for (int k = 0; k < kMoments; ++k) from[k] = old(k, at), to[k] = now(k, at);
      keep_sum(i, update_row<Rule, kGradient>(rule, w + at, new_w + at, from, to, a[i], b, columns));
    }
    return;
  }
  alignas(64) float block[kBlockFloats];
  const Range blocks = share((c.rows + each - 1) / each, c.parts, part);
  for (int64_t row = blocks.begin * each; row < blocks.end * each && row < c.rows; row += each) {
    const int64_t end = row + each < c.rows ? row + each : c.rows, at = row * columns, count = (end - row) * columns;
    for (int64_t i = row; i < end; ++i)
      keep_sum(i, multiply_row<kGradient>(w + i * columns, a[i], b, block + (i - row) * columns, columns));
    Elements<Rule> some{};
    some.w = w + at, some.g = block, some.new_w = new_w + at;
    for (int k = 0; k < kMoments; ++k) some.old[k] = old(k, at), some.now[k] = now(k, at);
    for (int64_t i = 0; i < count; i += kWidth) some.step(rule, i, lanes_at(i, count));
  }
}

template <typename Rule>
void update_outer_part(const OuterUpdateContext& c, void* const* buffers, uint32_t part) {
  c.gradient ? update_rows<Rule, true>(c, buffers, part) : update_rows<Rule, false>(c, buffers, part);
}

}  // namespace

void sgd(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OptimizerContext*>(context);
  c.has_velocity ? update_part<SgdRule<true>>(c, buffers, part) : update_part<SgdRule<false>>(c, buffers, part);
}

void adam(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_part<AdamRule>(*static_cast<const OptimizerContext*>(context), buffers, part);
}

void lion(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_part<LionRule>(*static_cast<const OptimizerContext*>(context), buffers, part);
}

// w, a, b, moments..., lr, [step] -> w, moments..., gradient?
void update_outer(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OuterUpdateContext*>(context);
  switch (c.kind) {
    case OuterUpdateContext::sgd:
      return c.rule.has_velocity ? update_outer_part<SgdRule<true>>(c, buffers, part)
                                 : update_outer_part<SgdRule<false>>(c, buffers, part);
    case OuterUpdateContext::adam:
      return update_outer_part<AdamRule>(c, buffers, part);
    case OuterUpdateContext::lion:
      return update_outer_part<LionRule>(c, buffers, part);
  }
}

}  // namespace harmonics::cpu::HM_ISA
