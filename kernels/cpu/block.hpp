// Scalar operations on blocks of elements, the building blocks of elementwise kernels.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// Elementwise operations: name at a call site, number of operands. clang-format 14 does not converge on this table.
// clang-format off
#define HM_SCALAR_OPS(X)                                                                                               \
  X(neg, 1) X(abs, 1) X(sign, 1) X(floor, 1) X(ceil, 1) X(round, 1) X(exp, 1) X(expm1, 1) X(log, 1) X(log1p, 1)        \
  X(sqrt, 1) X(rsqrt, 1) X(sin, 1) X(cos, 1) X(tanh, 1) X(erf, 1) X(gelu, 1) X(logistic, 1) X(logical_not, 1)          \
  X(stop_gradient, 1) X(cast, 1) X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(pow, 2) X(maximum, 2) X(minimum, 2)         \
  X(remainder, 2) X(equal, 2) X(less, 2) X(less_equal, 2) X(logical_and, 2) X(logical_or, 2) X(logical_xor, 2)         \
  X(select, 3) X(sigmoid_cross_entropy, 2) X(sigmoid_cross_entropy_grad, 3) X(gelu_grad, 2) X(is_nan, 1) X(is_inf, 1)  \
  X(bit_and, 2) X(bit_or, 2) X(bit_xor, 2) X(shift_left, 2) X(shift_right_logical, 2) X(shift_right_arithmetic, 2)     \
  X(tan, 1) X(asin, 1) X(acos, 1) X(atan, 1) X(sinh, 1) X(cosh, 1) X(asinh, 1) X(acosh, 1) X(atanh, 1) X(atan2, 2)
// clang-format on

enum class ScalarOp : uint8_t {
#define HM_ROW(name, operands) name##_,
  HM_SCALAR_OPS(HM_ROW)
#undef HM_ROW
};

// out[i] = op(a[i], b[i], c[i]) for i < n; out may alias an operand of the same width.
using BlockCode = void(const void* a, const void* b, const void* c, void* out, int64_t n);
using Block = BlockCode*;

enum Activation : int { kNone = 0, kRelu = 1, kTanh = 2, kLogistic = 3, kGelu = 4 };

}  // namespace harmonics::cpu
