// Storage: quantisation as in ONNX QuantizeLinear and DequantizeLinear.
#include <algorithm>
#include <cstring>

#include "engine/program/ops/dispatch.hpp"
#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/walk.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;

// Requires scale and zero point to be scalars, or vectors with one entry per index of `axis`.
void expect_steps(Op op, const AttributeMap& a, Types in) {
  expect_float(op, in, 1);
  expect_same_shape(op, in, 1, 2);
  if (in[1].shape.rank() == 0) return;
  const auto axis = static_cast<uint32_t>(expect_axis(op, in, a.integer("axis")));
  if (in[1].shape != Shape{in[0].shape[axis]})
    misfit(op, ErrorKind::Shape, in,
           "scale and zero point must be scalars or vectors of " + std::to_string(in[0].shape[axis]) +
               ", the size of axis " + std::to_string(axis));
}

// Views the input as [outer, channels, inner]. A scalar scale means one channel.
AxisView channels(const AttributeMap& a, Inputs in) {
  if (in[1].type.shape.rank() == 0) return AxisView({1, in[0].type.shape.count()}, 0);
  return AxisView(in[0].type.shape, a.integer("axis"));
}

// Calls convert(element index, channel) for every element.
template <typename Convert>
void for_each_channel(const AxisView& view, Convert&& convert) {
  int64_t at = 0;
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t c = 0; c < view.size; ++c)
      for (int64_t i = 0; i < view.inner; ++i) convert(at++, c);
}

// ---- quantize

bool stores_quantized(DType dtype) { return is_integer(dtype) && element_bytes(dtype) <= 2; }

std::vector<TensorType> infer_quantize(const AttributeMap& a, Types in) {
  expect_operands(Op::quantize, in, 3);
  expect_float(Op::quantize, in, 0);
  expect_same_dtype(Op::quantize, in, 0, 1);
  expect_steps(Op::quantize, a, in);
  const DType to = a.dtype();
  if (!stores_quantized(to))
    misfit(Op::quantize, ErrorKind::Type, in,
           "the result can be u8, i8, u16 or i16, not " + std::string(dtype_name(to)));
  if (in[2].dtype != to)
    misfit(Op::quantize, ErrorKind::Type, in,
           "the zero point must be of the result's type, " + std::string(dtype_name(to)));
  return {{to, in[0].shape}};
}

// Returns saturate(round_half_to_even(x / scale) + zero), or the zero point for NaN.
template <typename Q, typename S>
Q quantized(S x, S scale, Q zero) {
  const S steps = std::nearbyint(x / scale);
  if (std::isnan(steps)) return zero;
  const double moved = static_cast<double>(steps) + static_cast<double>(zero);
  return static_cast<Q>(std::clamp<double>(moved, std::numeric_limits<Q>::min(), std::numeric_limits<Q>::max()));
}

template <typename X, typename Q>
void quantize(const AxisView& view, Inputs in, Outputs out) {
  const X *x = static_cast<const X*>(in[0].data), *scale = static_cast<const X*>(in[1].data);
  const Q* zero = static_cast<const Q*>(in[2].data);
  Q* y = static_cast<Q*>(out[0].data);
  using S = Computed<X>;
  for_each_channel(view, [&](int64_t i, int64_t c) {
    y[i] = quantized<Q, S>(static_cast<S>(x[i]), static_cast<S>(scale[c]), zero[c]);
  });
}

// Calls `body` with a float type X and an integer type Q of at most `kBytes` bytes.
template <size_t kBytes, typename Body>
void visit_pair(DType real, DType stored, Body&& body) {
  visit_dtype(real, [&](auto x) {
    visit_dtype(stored, [&](auto q) {
      using X = typename decltype(x)::type;
      using Q = typename decltype(q)::type;
      if constexpr (is_float_element<X> && std::is_integral_v<Q> && !std::is_same_v<Q, bool> && sizeof(Q) <= kBytes)
        body(x, q);
    });
  });
}

void evaluate_quantize(const AttributeMap& a, Inputs in, Outputs out) {
  visit_pair<2>(in[0].type.dtype, out[0].type.dtype, [&](auto x, auto q) {
    quantize<typename decltype(x)::type, typename decltype(q)::type>(channels(a, in), in, out);
  });
}

// ---- dequantize

std::vector<TensorType> infer_dequantize(const AttributeMap& a, Types in) {
  expect_operands(Op::dequantize, in, 3);
  if (!stores_quantized(in[0].dtype) && in[0].dtype != DType::I32)
    misfit(Op::dequantize, ErrorKind::Type, in, "the first operand can be u8, i8, u16, i16 or i32");
  expect_same_dtype(Op::dequantize, in, 0, 2);
  expect_steps(Op::dequantize, a, in);
  return {{in[1].dtype, in[0].shape}};
}

template <typename X, typename Q>
void dequantize(const AxisView& view, Inputs in, Outputs out) {
  const Q *q = static_cast<const Q*>(in[0].data), *zero = static_cast<const Q*>(in[2].data);
  const X* scale = static_cast<const X*>(in[1].data);
  X* y = static_cast<X*>(out[0].data);
  using S = Computed<X>;
  for_each_channel(view, [&](int64_t i, int64_t c) {
    const int64_t steps = static_cast<int64_t>(q[i]) - static_cast<int64_t>(zero[c]);
    y[i] = static_cast<X>(static_cast<S>(steps) * static_cast<S>(scale[c]));
  });
}

void evaluate_dequantize(const AttributeMap& a, Inputs in, Outputs out) {
  visit_pair<4>(in[1].type.dtype, in[0].type.dtype, [&](auto x, auto q) {
    dequantize<typename decltype(x)::type, typename decltype(q)::type>(channels(a, in), in, out);
  });
}

// ---- bitcast

std::vector<TensorType> infer_bitcast(const AttributeMap& a, Types in) {
  expect_operands(Op::bitcast, in, 1);
  const DType to = a.dtype();
  if (in[0].dtype == DType::Bool || to == DType::Bool)
    misfit(Op::bitcast, ErrorKind::Type, in, "bits of bool cannot be those of another type; cast it");
  const size_t from_bytes = element_bytes(in[0].dtype), to_bytes = element_bytes(to);
  std::vector<int64_t> dims = in[0].shape.vector();
  if (from_bytes > to_bytes) dims.push_back(static_cast<int64_t>(from_bytes / to_bytes));
  if (from_bytes < to_bytes) {
    const auto parts = static_cast<int64_t>(to_bytes / from_bytes);
    if (dims.empty() || dims.back() != parts)
      misfit(Op::bitcast, ErrorKind::Shape, in,
             "the last axis must be " + std::to_string(parts) + " elements, the bytes of one " +
                 std::string(dtype_name(to)));
    dims.pop_back();
  }
  return {checked_type(Op::bitcast, in, to, dims)};
}

void evaluate_bitcast(const AttributeMap&, Inputs in, Outputs out) {
  if (const size_t bytes = in[0].type.bytes()) std::memcpy(out[0].data, in[0].data, bytes);
}

}  // namespace

OpRow storage_row(Op op) {
  switch (op) {
    case Op::quantize:
      return {op, {}, {}, infer_quantize, evaluate_quantize, nullptr};
    case Op::dequantize:
      return {op, {}, {}, infer_dequantize, evaluate_dequantize, nullptr};
    case Op::bitcast:
      return {op, {}, {}, infer_bitcast, evaluate_bitcast, nullptr};
    default:
      throw Error(ErrorKind::Internal, "no storage operation");
  }
}

}  // namespace harmonics::engine
