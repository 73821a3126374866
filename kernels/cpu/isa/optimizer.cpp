#include "../optimizer.hpp"

#include "coded_adam.hpp"
#include "kernels.hpp"
#include "update_rules.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Calls `run` with the first row and the number of rows of each row of blocks in a part.
template <typename Run>
HM_INLINE void for_blocks(int64_t rows, uint32_t parts, uint32_t part, Run run) {
  const Range blocks = share((rows + kBlock - 1) / kBlock, parts, part);
  for (int64_t i = blocks.begin * kBlock; i < blocks.end * kBlock && i < rows; i += kBlock)
    run(i, rows - i < kBlock ? rows - i : kBlock);
}

// w, g, moments..., scales..., lr, [step] -> w, moments..., scales...
template <typename Types>
HM_INLINE void update_part(const OptimizerContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  const FlushDenormals flush;
  constexpr int kLr = 2 + Types::kTensors;
  const int kOut = kLr + (c.counts_steps ? 2 : 1);
  const uint32_t number = step_number(c, buffers[kLr + 1]);
  const float* g = static_cast<const float*>(buffers[1]);
  const Rule rule(c, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  if constexpr (Types::kCoded) {
    const int64_t n = c.count / c.rows;
    const CodedWeights weights = coded_weights<Rule>(buffers, 2, kOut, n, number);
    for_blocks(
        c.rows, c.parts, part, [&](int64_t row, int64_t rows) __attribute__((always_inline)) {
          const auto load_from = [&](int64_t r, int64_t j, int64_t some) __attribute__((always_inline)) {
            return load_some(g + (row + r) * n + j, some);
          };
          update_blocks(rule, weights, row, rows, 0, n, LoadedGradient{load_from});
        });
  } else {
    Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 2, kOut, RandomBits(number));
    all.g = g;
    // Parts are multiples of vectors.
    const Range vectors = share((c.count + kWidth - 1) / kWidth, c.parts, part);
    const int64_t end = vectors.end * kWidth < c.count ? vectors.end * kWidth : c.count;
    all.template steps<true>(rule, vectors.begin * kWidth, end);
  }
}
template <UpdateKind kKind>
void update_kind(const void* context, void* const* buffers, uint32_t part) {
  const auto& c = *static_cast<const OptimizerContext*>(context);
  with_step_types(
      kKind, c, [&](auto types) __attribute__((always_inline)) { update_part<decltype(types)>(c, buffers, part); });
}

// Updates one row of w for a single sample, with the gradient x b. Returns the sum of w b for the old w.
template <bool kGradient, typename Rule, typename Moment>
HM_INLINE float update_row(const Rule& rule, const Elements<Rule, Moment>& row, float x, const float* b, int64_t n) {
  vf sum{};
  const auto step = [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
    const vf weight = load_some(row.w + j, lanes), y = load_some(b + j, lanes);
    if (kGradient) sum = fma(weight, y, sum);
    row.fetch(j);
    row.step(rule, j, lanes, weight, x * y);
  };
  int64_t j = 0;
  if constexpr (kTogether > 1)
    for (; j + kTogether * kWidth <= n; j += kTogether * kWidth) {
      for (int64_t v = 0; v < kTogether; ++v) row.fetch(j + v * kWidth);
      row.step_together(
          rule, j, [&](int64_t v, vf weight) __attribute__((always_inline)) {
            const vf y = load(b + j + v * kWidth);
            if (kGradient) sum = fma(weight, y, sum);
            return x * y;
          });
    }
  for (; j + kWidth <= n; j += kWidth) step(j, kWidth);
  if (j < n) step(j, n - j);
  return kGradient ? sum_of(sum) : 0;
}

// Rows whose length is not a multiple of a vector would make vectors cross cache lines in every operand. They are
// updated in blocks of rows that are a multiple, and whose gradient stays in the L1 cache.
constexpr int64_t kBlockFloats = 2048;
HM_INLINE int64_t rows_of_block(int64_t columns) {
  int64_t rows = 1;
  while (rows * columns % kWidth != 0) rows *= 2;
  return rows == 1 ? 1 : kBlockFloats / (rows * columns) * rows;  // 0: the rows are too long
}

// Stores the gradient x b of one row in g; returns the sum of w b.
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

template <bool kGradient, typename Types>
HM_INLINE void update_rows(const OuterUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  const FlushDenormals flush;
  constexpr int kLr = 3 + Types::kTensors;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const int64_t columns = c.columns;
  const float *a = static_cast<const float*>(buffers[1]), *b = static_cast<const float*>(buffers[2]);
  float* gradient = kGradient ? static_cast<float*>(buffers[kOut + 1 + Types::kTensors]) : nullptr;
  const uint32_t number = step_number(c.rule, buffers[kLr + 1]);
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const auto keep_sum = [&](int64_t i, float sum) __attribute__((always_inline)) {
    if (kGradient) gradient[i] = c.active && a[i] <= 0 ? 0 : sum;
  };
  if constexpr (Types::kCoded) {
    const CodedWeights weights = coded_weights<Rule>(buffers, 3, kOut, columns, number);
    for_blocks(
        c.rows, c.parts, part, [&](int64_t row, int64_t rows) __attribute__((always_inline)) {
          vf sums[kBlock] = {};
          update_blocks(rule, weights, row, rows, 0, columns, OuterGradient<kGradient>{a + row, b, sums, {}});
          if (kGradient)
            for (int64_t r = 0; r < rows; ++r) keep_sum(row + r, sum_of(sums[r]));
        });
  } else {
    const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, RandomBits(number));
    const int64_t each = rows_of_block(columns);
    if (each <= 1) {
      const Range rows = share(c.rows, c.parts, part);
      for (int64_t i = rows.begin; i < rows.end; ++i)
        keep_sum(i, update_row<kGradient>(rule, from_place(all, i * columns, nullptr), a[i], b, columns));
      return;
    }
    alignas(64) float block[kBlockFloats];
    const Range blocks = share((c.rows + each - 1) / each, c.parts, part);
    for (int64_t row = blocks.begin * each; row < blocks.end * each && row < c.rows; row += each) {
      const int64_t end = row + each < c.rows ? row + each : c.rows, at = row * columns, count = (end - row) * columns;
      for (int64_t i = row; i < end; ++i)
        keep_sum(i, multiply_row<kGradient>(all.w + i * columns, a[i], b, block + (i - row) * columns, columns));
      from_place(all, at, block).template steps<true>(rule, 0, count);
    }
  }
}

}  // namespace

void sgd(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_kind<UpdateKind::sgd>(context, buffers, part);
}
void adam(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_kind<UpdateKind::adam>(context, buffers, part);
}
void lion(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_kind<UpdateKind::lion>(context, buffers, part);
}

// w, a, b, moments..., scales..., lr, [step] -> w, moments..., scales..., gradient?
void update_outer(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OuterUpdateContext*>(context);
  with_step_types(
      c.kind, c.rule, [&](auto types) __attribute__((always_inline)) {
        c.gradient ? update_rows<true, decltype(types)>(c, buffers, part)
                   : update_rows<false, decltype(types)>(c, buffers, part);
      });
}

}  // namespace harmonics::cpu::HM_ISA
