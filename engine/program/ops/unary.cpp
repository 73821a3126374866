// Elementwise operations on one operand.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include <harmonics/ops.hpp>

#include "engine/program/ops/check.hpp"
#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Tensors = std::span<const HTensor>;
using Gradients = std::vector<HTensor>;

// ---- inference

template <Op kOp>
std::vector<TensorType> infer_float(const AttributeMap&, Types in) {
  expect_operands(kOp, in, 1);
  expect_float(kOp, in);
  return {in[0]};
}

template <Op kOp>
std::vector<TensorType> infer_number(const AttributeMap&, Types in) {
  expect_operands(kOp, in, 1);
  expect_number(kOp, in);
  return {in[0]};
}

std::vector<TensorType> infer_not(const AttributeMap&, Types in) {
  expect_operands(Op::logical_not, in, 1);
  expect_bool(Op::logical_not, in);
  return {in[0]};
}

template <Op kOp>
std::vector<TensorType> infer_test(const AttributeMap&, Types in) {
  expect_operands(kOp, in, 1);
  expect_float(kOp, in);
  return {{DType::Bool, in[0].shape}};
}

std::vector<TensorType> infer_cast(const AttributeMap& a, Types in) {
  expect_operands(Op::cast, in, 1);
  const DType to = a.dtype(), from = in[0].dtype;
  if (from != to && ((is_stored(from) && !is_float(to)) || (is_stored(to) && !is_float(from))))
    misfit(Op::cast, ErrorKind::Type, in,
           "stored types are converted to and from floating-point types only, not to " + std::string(dtype_name(to)));
  return {checked_type(Op::cast, to, in[0].shape)};
}

// ---- evaluation

template <typename F>
void map_floats(const ConstView& in, const View& out, F f) {
  visit_dtype(out.type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_float_element<T>) {
      const auto* x = static_cast<const T*>(in.data);
      auto* y = static_cast<T*>(out.data);
      const int64_t n = out.type.shape.count();
      for (int64_t i = 0; i < n; ++i) y[i] = T(f(static_cast<Computed<T>>(x[i])));
    } else {
      throw Error(ErrorKind::Internal, "an operation on floats was given " + out.type.str());
    }
  });
}

template <typename F>
void map_numbers(const ConstView& in, const View& out, F f) {
  visit_dtype(out.type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) {
      const auto* x = static_cast<const T*>(in.data);
      auto* y = static_cast<T*>(out.data);
      const int64_t n = out.type.shape.count();
      for (int64_t i = 0; i < n; ++i) y[i] = T(f(static_cast<Computed<T>>(x[i])));
    } else {
      throw Error(ErrorKind::Internal, "an operation on numbers was given " + out.type.str());
    }
  });
}

// Integers wrap instead of overflowing.
struct Negate {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
    else
      return -x;
  }
};
struct Absolute {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return std::abs(x);
    else if constexpr (std::is_signed_v<T>)
      return x < 0 ? Negate{}(x) : x;
    else
      return x;
  }
};
struct Sign {  // returns zeros and NaN as they are
  template <typename T>
  T operator()(T x) const {
    return x > T{0} ? T(1) : x < T{0} ? T(-1) : x;
  }
};
struct Logistic {  // evaluates exp only for non-positive values, which cannot overflow
  template <typename T>
  T operator()(T x) const {
    const T e = std::exp(-std::abs(x));
    return (x >= 0 ? T(1) : e) / (T(1) + e);
  }
};

template <typename F>
void evaluate_floats(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  map_floats(in[0], out[0], F{});
}
template <typename F>
void evaluate_numbers(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  map_numbers(in[0], out[0], F{});
}

void evaluate_not(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  const auto* x = static_cast<const bool*>(in[0].data);
  auto* y = static_cast<bool*>(out[0].data);
  const int64_t n = out[0].type.shape.count();
  for (int64_t i = 0; i < n; ++i) y[i] = !x[i];
}

struct IsNan {
  bool operator()(auto x) const { return std::isnan(x); }
};
struct IsInf {
  bool operator()(auto x) const { return std::isinf(x); }
};
template <typename F>
void evaluate_test(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  const int64_t n = out[0].type.shape.count();
  visit_dtype(in[0].type.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_float_element<T>) {
      const auto* x = static_cast<const T*>(in[0].data);
      auto* y = static_cast<bool*>(out[0].data);
      for (int64_t i = 0; i < n; ++i) y[i] = F{}(static_cast<Computed<T>>(x[i]));
    } else {
      throw Error(ErrorKind::Internal, "an operation on floats was given " + in[0].type.str());
    }
  });
}

// Converts stored types through f32, in chunks of several blocks.
void cast_stored(const ConstView& in, const View& out) {
  constexpr int64_t kChunk = 1024;  // a multiple of every block size
  float numbers[kChunk];
  const auto visit_wide = [&](DType dtype, auto&& body) {
    visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (is_float_element<T>) body(T{});
    });
  };
  const int64_t count = out.type.shape.count();
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t n = std::min(kChunk, count - at);
    const auto* from = static_cast<const char*>(in.data) + run_bytes(in.type.dtype, at);
    auto* to = static_cast<char*>(out.data) + run_bytes(out.type.dtype, at);
    if (is_stored(in.type.dtype)) {
      decode_elements(in.type.dtype, from, numbers, n);
      visit_wide(out.type.dtype, [&](auto element) {
        using T = decltype(element);
        for (int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(to)[i] = convert_element<T>(numbers[i]);
      });
    } else {
      visit_wide(in.type.dtype, [&](auto element) {
        using T = decltype(element);
        for (int64_t i = 0; i < n; ++i) numbers[i] = convert_element<float>(reinterpret_cast<const T*>(from)[i]);
      });
      encode_elements(out.type.dtype, numbers, to, n);
    }
  }
}

void evaluate_cast(const AttributeMap&, std::span<const ConstView> in, std::span<const View> out) {
  const int64_t n = out[0].type.shape.count();
  if (in[0].type.dtype == out[0].type.dtype) {
    if (n) std::memcpy(out[0].data, in[0].data, out[0].type.bytes());
    return;
  }
  if (is_stored(in[0].type.dtype) || is_stored(out[0].type.dtype)) return cast_stored(in[0], out[0]);
  visit_dtype(in[0].type.dtype, [&](auto from) {
    visit_dtype(out[0].type.dtype, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      const auto* x = static_cast<const From*>(in[0].data);
      auto* y = static_cast<To*>(out[0].data);
      for (int64_t i = 0; i < n; ++i) y[i] = convert_element<To>(x[i]);
    });
  });
}

// ---- gradients

Gradients gradient_neg(const AttributeMap&, Tensors, Tensors, Tensors dy) { return {neg(dy[0])}; }
Gradients gradient_abs(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] * sign(x[0])}; }
Gradients gradient_exp(const AttributeMap&, Tensors, Tensors y, Tensors dy) { return {dy[0] * y[0]}; }
Gradients gradient_expm1(const AttributeMap&, Tensors, Tensors y, Tensors dy) { return {dy[0] * (y[0] + 1.0)}; }
Gradients gradient_log(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] / x[0]}; }
Gradients gradient_log1p(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] / (x[0] + 1.0)}; }
Gradients gradient_sqrt(const AttributeMap&, Tensors, Tensors y, Tensors dy) { return {dy[0] / (y[0] * 2.0)}; }
Gradients gradient_rsqrt(const AttributeMap&, Tensors, Tensors y, Tensors dy) {
  return {dy[0] * (y[0] * y[0] * y[0] * -0.5)};
}
Gradients gradient_sin(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] * cos(x[0])}; }
Gradients gradient_cos(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {neg(dy[0] * sin(x[0]))}; }
Gradients gradient_tanh(const AttributeMap&, Tensors, Tensors y, Tensors dy) { return {dy[0] * (1.0 - y[0] * y[0])}; }
Gradients gradient_tan(const AttributeMap&, Tensors, Tensors y, Tensors dy) { return {dy[0] * (y[0] * y[0] + 1.0)}; }
Gradients gradient_asin(const AttributeMap&, Tensors x, Tensors, Tensors dy) {
  return {dy[0] * rsqrt(1.0 - x[0] * x[0])};
}
Gradients gradient_acos(const AttributeMap&, Tensors x, Tensors, Tensors dy) {
  return {neg(dy[0] * rsqrt(1.0 - x[0] * x[0]))};
}
Gradients gradient_atan(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] / (x[0] * x[0] + 1.0)}; }
Gradients gradient_sinh(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] * cosh(x[0])}; }
Gradients gradient_cosh(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] * sinh(x[0])}; }
Gradients gradient_asinh(const AttributeMap&, Tensors x, Tensors, Tensors dy) {
  return {dy[0] * rsqrt(x[0] * x[0] + 1.0)};
}
Gradients gradient_acosh(const AttributeMap&, Tensors x, Tensors, Tensors dy) {
  return {dy[0] * rsqrt(x[0] * x[0] - 1.0)};
}
Gradients gradient_atanh(const AttributeMap&, Tensors x, Tensors, Tensors dy) { return {dy[0] / (1.0 - x[0] * x[0])}; }
Gradients gradient_erf(const AttributeMap&, Tensors x, Tensors, Tensors dy) {
  constexpr double kScale = 2 * std::numbers::inv_sqrtpi;
  return {dy[0] * (exp(neg(x[0] * x[0])) * kScale)};
}
Gradients gradient_logistic(const AttributeMap&, Tensors, Tensors y, Tensors dy) {
  return {dy[0] * (y[0] * (1.0 - y[0]))};
}
Gradients gradient_cast(const AttributeMap&, Tensors x, Tensors, Tensors dy) {
  if (is_stored(x[0].dtype()) || is_stored(dy[0].dtype())) return {HTensor()};
  return {cast(dy[0], x[0].dtype())};
}

}  // namespace

// Rows that evaluate one <cmath> expression.
#define HM_FLOAT_ROW(name, expression, rule)                                                             \
  case Op::name: {                                                                                       \
    constexpr auto f = [](auto x) { return expression; };                                                \
    return {op, {}, {}, infer_float<Op::name>, evaluate_floats<std::remove_const_t<decltype(f)>>, rule}; \
  }

OpRow unary_row(Op op) {
  switch (op) {
    case Op::neg:
      return {op, {}, {}, infer_number<Op::neg>, evaluate_numbers<Negate>, gradient_neg};
    case Op::abs:
      return {op, {}, {}, infer_number<Op::abs>, evaluate_numbers<Absolute>, gradient_abs};
    case Op::sign:
      return {op, {}, {}, infer_number<Op::sign>, evaluate_numbers<Sign>, nullptr};
    case Op::logical_not:
      return {op, {}, {}, infer_not, evaluate_not, nullptr};
    case Op::cast:
      return {op, {}, {}, infer_cast, evaluate_cast, gradient_cast};
    case Op::logistic:
      return {op, {}, {}, infer_float<Op::logistic>, evaluate_floats<Logistic>, gradient_logistic};
    case Op::is_nan:
      return {op, {}, {}, infer_test<Op::is_nan>, evaluate_test<IsNan>, nullptr};
    case Op::is_inf:
      return {op, {}, {}, infer_test<Op::is_inf>, evaluate_test<IsInf>, nullptr};
      HM_FLOAT_ROW(floor, std::floor(x), nullptr)
      HM_FLOAT_ROW(ceil, std::ceil(x), nullptr)
      HM_FLOAT_ROW(round, std::nearbyint(x), nullptr)  // rounds half to even
      HM_FLOAT_ROW(exp, std::exp(x), gradient_exp)
      HM_FLOAT_ROW(expm1, std::expm1(x), gradient_expm1)
      HM_FLOAT_ROW(log, std::log(x), gradient_log)
      HM_FLOAT_ROW(log1p, std::log1p(x), gradient_log1p)
      HM_FLOAT_ROW(sqrt, std::sqrt(x), gradient_sqrt)
      HM_FLOAT_ROW(rsqrt, decltype(x)(1) / std::sqrt(x), gradient_rsqrt)
      HM_FLOAT_ROW(sin, std::sin(x), gradient_sin)
      HM_FLOAT_ROW(cos, std::cos(x), gradient_cos)
      HM_FLOAT_ROW(tanh, std::tanh(x), gradient_tanh)
      HM_FLOAT_ROW(tan, std::tan(x), gradient_tan)
      HM_FLOAT_ROW(asin, std::asin(x), gradient_asin)
      HM_FLOAT_ROW(acos, std::acos(x), gradient_acos)
      HM_FLOAT_ROW(atan, std::atan(x), gradient_atan)
      HM_FLOAT_ROW(sinh, std::sinh(x), gradient_sinh)
      HM_FLOAT_ROW(cosh, std::cosh(x), gradient_cosh)
      HM_FLOAT_ROW(asinh, std::asinh(x), gradient_asinh)
      HM_FLOAT_ROW(acosh, std::acosh(x), gradient_acosh)
      HM_FLOAT_ROW(atanh, std::atanh(x), gradient_atanh)
      HM_FLOAT_ROW(erf, std::erf(x), gradient_erf)
    default:
      throw Error(ErrorKind::Internal, std::string(op_name(op)) + " is not unary");
  }
}
#undef HM_FLOAT_ROW

}  // namespace harmonics::engine
