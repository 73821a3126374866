// Reduction rules and their order of summation, which is the same for stored and for fused operands. Private to the
// including translation unit.
#pragma once

#include "../reduce.hpp"

#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

struct Sum {
  static constexpr float kStart = 0;
  template <typename V>
  HM_INLINE static V join(V a, V b) {
    return a + b;
  }
};
struct Product {
  static constexpr float kStart = 1;
  template <typename V>
  HM_INLINE static V join(V a, V b) {
    return a * b;
  }
};
struct Maximum {
  static constexpr float kStart = -kInfinity;
  template <typename V>
  HM_INLINE static V join(V a, V b) {
    return a != a ? a : a > b ? a : b;
  }
};
struct Minimum {
  static constexpr float kStart = kInfinity;
  template <typename V>
  HM_INLINE static V join(V a, V b) {
    return a != a ? a : a < b ? a : b;
  }
};

constexpr int64_t kGroup = kReduceGroup;
constexpr int64_t kBlockRows = kGroup * kGroup;

template <typename Rule>
HM_INLINE vf reduce_block(const float* x, int64_t n) {
  const vf start = splat(Rule::kStart);
  vf total = start;
  int64_t i = 0;
  while (n - i >= 4 * kWidth) {
    vf a = start, b = start, c = start, d = start;
    for (int64_t k = 0; k < kGroup && n - i >= 4 * kWidth; ++k, i += 4 * kWidth) {
      a = Rule::join(a, load(x + i));
      b = Rule::join(b, load(x + i + kWidth));
      c = Rule::join(c, load(x + i + 2 * kWidth));
      d = Rule::join(d, load(x + i + 3 * kWidth));
    }
    total = Rule::join(total, Rule::join(Rule::join(a, b), Rule::join(c, d)));
  }
  for (; i + kWidth <= n; i += kWidth) total = Rule::join(total, load(x + i));
  if (i < n) total = Rule::join(total, first(load_part(x + i, n - i), n - i, start));
  return total;
}
template <typename Rule>
float reduce_row(const float* x, int64_t n) {
  constexpr int64_t kBlock = kBlockRows * 4 * kWidth;
  vf total = splat(Rule::kStart);
  for (int64_t i = 0; i < n; i += kBlock)
    total = Rule::join(total, reduce_block<Rule>(x + i, n - i < kBlock ? n - i : kBlock));
  return join_halves(
      total, [](auto a, auto b) __attribute__((always_inline)) { return Rule::join(a, b); });
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
