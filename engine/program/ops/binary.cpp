// Elementwise operations on two operands of equal shape and type.
//
// Integers wrap; a quotient or remainder by zero is 0. maximum and minimum give NaN if either operand is NaN.
#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/program/ops/check.hpp"
#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Tensors = std::span<const HTensor>;
using Gradients = std::vector<HTensor>;

// ---- inference

void expect_alike(Op op, Types in) {
  expect_operands(op, in, 2);
  expect_same_dtype(op, in);
  expect_same_shape(op, in);
}

template <Op kOp>
std::vector<TensorType> infer_arithmetic(const AttributeMap&, Types in) {
  expect_alike(kOp, in);
  expect_number(kOp, in);
  return {in[0]};
}
template <Op kOp>
std::vector<TensorType> infer_floats(const AttributeMap&, Types in) {
  expect_alike(kOp, in);
  expect_float(kOp, in);
  return {in[0]};
}
template <Op kOp>
std::vector<TensorType> infer_comparison(const AttributeMap&, Types in) {
  expect_alike(kOp, in);
  if (kOp != Op::equal) expect_number(kOp, in);
  return {{DType::Bool, in[0].shape}};
}
template <Op kOp>
std::vector<TensorType> infer_logical(const AttributeMap&, Types in) {
  expect_alike(kOp, in);
  expect_bool(kOp, in);
  return {in[0]};
}

template <Op kOp>
std::vector<TensorType> infer_bits(const AttributeMap&, Types in) {
  expect_alike(kOp, in);
  expect_integer(kOp, in);
  return {in[0]};
}

// ---- evaluation

template <typename T>
inline constexpr bool is_signed_integer = std::is_integral_v<T>&& std::is_signed_v<T>;

// Computes in unsigned 64 bits; the low bits are the wrapped result for every width.
template <typename T, typename F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return f(a, b);
}
struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a / b;
    } else {
      if (b == T{0}) return T{0};
      if constexpr (is_signed_integer<T>)  // the minimum divided by -1 wraps to itself
        if (b == T(-1)) return Sub{}(T{0}, a);
      return static_cast<T>(a / b);
    }
  }
};
struct Remainder {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if (b == T{0}) return T{0};
      if constexpr (is_signed_integer<T>)
        if (b == T(-1)) return T{0};
      return static_cast<T>(a % b);
    }
  }
};
struct Power {
  template <typename T>
  T operator()(T a, T b) const {
    return std::pow(a, b);
  }
};
struct ArcTangent {
  template <typename T>
  T operator()(T a, T b) const {
    return std::atan2(a, b);
  }
};
struct BitAnd {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
// Returns the shift amount as an unsigned number. Amounts of at least the width of T shift out every bit.
template <typename T>
constexpr uint64_t amount(T by) {
  return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(by));
}
template <typename T>
inline constexpr uint64_t bit_width = 8 * sizeof(T);
struct ShiftLeft {
  template <typename T>
  T operator()(T a, T by) const {
    return amount(by) < bit_width<T> ? static_cast<T>(static_cast<uint64_t>(a) << amount(by)) : T{0};
  }
};
struct ShiftRightLogical {
  template <typename T>
  T operator()(T a, T by) const {
    return amount(by) < bit_width<T> ? static_cast<T>(amount(a) >> amount(by)) : T{0};
  }
};
struct ShiftRightArithmetic {
  template <typename T>
  T operator()(T a, T by) const {
    const bool negative = a < T{0};
    return amount(by) < bit_width<T> ? static_cast<T>(a >> amount(by)) : negative ? static_cast<T>(~T{0}) : T{0};
  }
};
struct Maximum {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct Minimum {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

template <typename F, typename Element, typename Result>
void zip(std::span<const ConstView> in, const View& out) {
  const auto *a = static_cast<const Element*>(in[0].data), *b = static_cast<const Element*>(in[1].data);
  auto* y = static_cast<Result*>(out.data);
  const int64_t n = out.type.shape.count();
  using C = Computed<Element>;
  for (int64_t i = 0; i < n; ++i) y[i] = Result(F{}(static_cast<C>(a[i]), static_cast<C>(b[i])));
}

template <typename F, bool kFloatsOnly = false>
void evaluate_arithmetic(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  visit_dtype(in[0].type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool> || (kFloatsOnly && !is_float_element<T>))
      throw Error(ErrorKind::Internal, "an arithmetic operation was given " + in[0].type.str());
    else
      zip<F, T, T>(in, out[0]);
  });
}
template <typename F>
void evaluate_bits(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  visit_dtype(in[0].type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool> || is_float_element<T>)
      throw Error(ErrorKind::Internal, "an operation on bits was given " + in[0].type.str());
    else
      zip<F, T, T>(in, out[0]);
  });
}
template <typename F>
void evaluate_comparison(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  visit_dtype(in[0].type.dtype, [&](auto tag) { zip<F, typename decltype(tag)::type, bool>(in, out[0]); });
}
template <typename F>
void evaluate_logical(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  zip<F, bool, bool>(in, out[0]);
}

// ---- gradients

Gradients gradient_add(const AttributeMap&, Tensors, Tensors, Tensors dy) { return {dy[0], dy[0]}; }
Gradients gradient_sub(const AttributeMap&, Tensors, Tensors, Tensors dy) { return {dy[0], neg(dy[0])}; }
Gradients gradient_mul(const AttributeMap&, Tensors in, Tensors, Tensors dy) { return {dy[0] * in[1], dy[0] * in[0]}; }
Gradients gradient_div(const AttributeMap&, Tensors in, Tensors y, Tensors dy) {
  const HTensor da = dy[0] / in[1];
  return {da, neg(da * y[0])};
}
// As in PyTorch, the gradient of the base is 0 for exponent 0, and that of the exponent is 0 for base 0.
Gradients gradient_pow(const AttributeMap&, Tensors in, Tensors y, Tensors dy) {
  const HTensor &a = in[0], &b = in[1], zero = zeros_like(a);
  const HTensor da = select(equal(b, zero), zero, dy[0] * (b * pow(a, b - 1.0)));
  const HTensor zero_base = logical_and(equal(a, zero), less_equal(zero, b));
  return {da, select(zero_base, zero, dy[0] * (y[0] * log(a)))};
}
// As in PyTorch, the gradient is 0 at the origin.
Gradients gradient_atan2(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  const HTensor &a = in[0], &b = in[1], zero = zeros_like(a), square = a * a + b * b;
  const HTensor scaled = select(equal(square, zero), zero, dy[0] / square);
  return {scaled * b, neg(scaled * a)};
}
// Returns the gradient of one operand: all for the selected one, half on a tie.
HTensor share(const HTensor& loses, const HTensor& ties, const HTensor& dy) {
  return select(loses, zeros_like(dy), select(ties, dy * 0.5, dy));
}
Gradients gradient_maximum(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  const HTensor ties = equal(in[0], in[1]);
  return {share(less(in[0], in[1]), ties, dy[0]), share(less(in[1], in[0]), ties, dy[0])};
}
Gradients gradient_minimum(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  const HTensor ties = equal(in[0], in[1]);
  return {share(less(in[1], in[0]), ties, dy[0]), share(less(in[0], in[1]), ties, dy[0])};
}
// y = a - b * trunc(a / b), so the quotient (a - y) / b is an integer up to rounding.
Gradients gradient_remainder(const AttributeMap&, Tensors in, Tensors y, Tensors dy) {
  return {dy[0], neg(dy[0] * round((in[0] - y[0]) / in[1]))};
}

struct Equal {
  bool operator()(auto a, auto b) const { return a == b; }
};
struct Less {
  bool operator()(auto a, auto b) const { return a < b; }
};
struct LessEqual {
  bool operator()(auto a, auto b) const { return a <= b; }
};
struct And {
  bool operator()(bool a, bool b) const { return a && b; }
};
struct Or {
  bool operator()(bool a, bool b) const { return a || b; }
};
struct Xor {
  bool operator()(bool a, bool b) const { return a != b; }
};

}  // namespace

OpRow binary_row(Op op) {
  switch (op) {
    case Op::add:
      return {op, {}, {}, infer_arithmetic<Op::add>, evaluate_arithmetic<Add>, gradient_add};
    case Op::sub:
      return {op, {}, {}, infer_arithmetic<Op::sub>, evaluate_arithmetic<Sub>, gradient_sub};
    case Op::mul:
      return {op, {}, {}, infer_arithmetic<Op::mul>, evaluate_arithmetic<Mul>, gradient_mul};
    case Op::div:
      return {op, {}, {}, infer_arithmetic<Op::div>, evaluate_arithmetic<Div>, gradient_div};
    case Op::pow:
      return {op, {}, {}, infer_floats<Op::pow>, evaluate_arithmetic<Power, true>, gradient_pow};
    case Op::maximum:
      return {op, {}, {}, infer_arithmetic<Op::maximum>, evaluate_arithmetic<Maximum>, gradient_maximum};
    case Op::minimum:
      return {op, {}, {}, infer_arithmetic<Op::minimum>, evaluate_arithmetic<Minimum>, gradient_minimum};
    case Op::remainder:
      return {op, {}, {}, infer_arithmetic<Op::remainder>, evaluate_arithmetic<Remainder>, gradient_remainder};
    case Op::equal:
      return {op, {}, {}, infer_comparison<Op::equal>, evaluate_comparison<Equal>, nullptr};
    case Op::less:
      return {op, {}, {}, infer_comparison<Op::less>, evaluate_comparison<Less>, nullptr};
    case Op::less_equal:
      return {op, {}, {}, infer_comparison<Op::less_equal>, evaluate_comparison<LessEqual>, nullptr};
    case Op::logical_and:
      return {op, {}, {}, infer_logical<Op::logical_and>, evaluate_logical<And>, nullptr};
    case Op::logical_or:
      return {op, {}, {}, infer_logical<Op::logical_or>, evaluate_logical<Or>, nullptr};
    case Op::logical_xor:
      return {op, {}, {}, infer_logical<Op::logical_xor>, evaluate_logical<Xor>, nullptr};
    case Op::atan2:
      return {op, {}, {}, infer_floats<Op::atan2>, evaluate_arithmetic<ArcTangent, true>, gradient_atan2};
    case Op::bit_and:
      return {op, {}, {}, infer_bits<Op::bit_and>, evaluate_bits<BitAnd>, nullptr};
    case Op::bit_or:
      return {op, {}, {}, infer_bits<Op::bit_or>, evaluate_bits<BitOr>, nullptr};
    case Op::bit_xor:
      return {op, {}, {}, infer_bits<Op::bit_xor>, evaluate_bits<BitXor>, nullptr};
    case Op::shift_left:
      return {op, {}, {}, infer_bits<Op::shift_left>, evaluate_bits<ShiftLeft>, nullptr};
    case Op::shift_right_logical:
      return {op, {}, {}, infer_bits<Op::shift_right_logical>, evaluate_bits<ShiftRightLogical>, nullptr};
    case Op::shift_right_arithmetic:
      return {op, {}, {}, infer_bits<Op::shift_right_arithmetic>, evaluate_bits<ShiftRightArithmetic>, nullptr};
    default:
      throw Error(ErrorKind::Internal, std::string(op_name(op)) + " is not binary");
  }
}

}  // namespace harmonics::engine
