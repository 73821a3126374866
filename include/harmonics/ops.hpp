// The primitives as functions on HTensor: evaluated eagerly on concrete tensors, recorded when traced.
//
// Names and semantics follow ONNX/StableHLO. Binary functions broadcast as NumPy does (primitives require equal shapes;
// the broadcast is recorded). Operands have one dtype; C++ numbers are converted to the tensor's dtype.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>

#include <harmonics/tensor.hpp>

namespace harmonics {

// ---- sources --------------------------------------------------------------------------------------------------------
HARMONICS_FACE inline HTensor full(DType dtype, const Shape& shape, double value) {
  return call1("full", {},
               Attributes().set("dtype", static_cast<int64_t>(dtype)).set("shape", shape).set("value", value));
}
HARMONICS_FACE inline HTensor zeros_like(const HTensor& x) { return full(x.dtype(), x.shape(), 0); }
// 0, 1, 2 ... along `axis`.
HARMONICS_FACE inline HTensor iota(DType dtype, const Shape& shape, int64_t axis) {
  return call1("iota", {},
               Attributes().set("dtype", static_cast<int64_t>(dtype)).set("shape", shape).set("axis", axis));
}

// ---- layout ---------------------------------------------------------------------------------------------------------
HARMONICS_FACE inline HTensor reshape(const HTensor& x, const Shape& shape) {
  return x.shape() == shape ? x : call1("reshape", {x}, Attributes().set("shape", shape));
}
HARMONICS_FACE inline HTensor transpose(const HTensor& x, const std::vector<int64_t>& permutation) {
  return call1("transpose", {x}, Attributes().set("permutation", permutation));
}
// Broadcasts to `shape`, trailing axes aligned.
HARMONICS_FACE inline HTensor broadcast(const HTensor& x, const Shape& shape) {
  return x.shape() == shape ? x : call1("broadcast", {x}, Attributes().set("shape", shape));
}
HARMONICS_FACE inline HTensor slice(const HTensor& x, const std::vector<int64_t>& starts,
                                    const std::vector<int64_t>& limits, const std::vector<int64_t>& strides = {}) {
  Attributes a;
  a.set("starts", starts).set("limits", limits);
  a.set("strides", strides.empty() ? std::vector<int64_t>(starts.size(), 1) : strides);
  return call1("slice", {x}, a);
}
// Slices one axis to [start, limit).
HARMONICS_FACE inline HTensor slice_axis(const HTensor& x, int64_t axis, int64_t start, int64_t limit) {
  const Shape s = x.shape();
  std::vector<int64_t> starts(s.rank(), 0), limits = s.vector();
  starts[static_cast<size_t>(axis)] = start;
  limits[static_cast<size_t>(axis)] = limit;
  return slice(x, starts, limits);
}
// Pads with `value`; `interior`: elements inserted between neighbours. low and high must not be negative.
HARMONICS_FACE inline HTensor pad(const HTensor& x, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                                  double value = 0, const std::vector<int64_t>& interior = {}) {
  Attributes a;
  a.set("low", low).set("high", high).set("value", value);
  a.set("interior", interior.empty() ? std::vector<int64_t>(low.size(), 0) : interior);
  return call1("pad", {x}, a);
}
HARMONICS_FACE inline HTensor concat(const std::vector<HTensor>& xs, int64_t axis) {
  return call1("concat", xs, Attributes().set("axis", axis));
}
HARMONICS_FACE inline HTensor reverse(const HTensor& x, const std::vector<int64_t>& axes) {
  return call1("reverse", {x}, Attributes().set("axes", axes));
}
HARMONICS_FACE inline HTensor cast(const HTensor& x, DType dtype) {
  return x.dtype() == dtype ? x : call1("cast", {x}, Attributes().set("dtype", static_cast<int64_t>(dtype)));
}

// Reinterprets the bytes of x as another type; neither type is bool. A narrower type adds a last axis, lowest bytes
// first; a wider type removes the last axis, whose bytes must form one element.
HARMONICS_FACE inline HTensor bitcast(const HTensor& x, DType dtype) {
  return call1("bitcast", {x}, Attributes().set("dtype", static_cast<int64_t>(dtype)));
}

// ---- elementwise ----------------------------------------------------------------------------------------------------
#define HARMONICS_UNARY(name) \
  HARMONICS_FACE inline HTensor name(const HTensor& x) { return call1(#name, {x}); }
HARMONICS_UNARY(neg)
HARMONICS_UNARY(abs)
HARMONICS_UNARY(sign)
HARMONICS_UNARY(floor)
HARMONICS_UNARY(ceil)
HARMONICS_UNARY(round)  // half to even
HARMONICS_UNARY(exp)
HARMONICS_UNARY(expm1)
HARMONICS_UNARY(log)
HARMONICS_UNARY(log1p)
HARMONICS_UNARY(sqrt)
HARMONICS_UNARY(rsqrt)
HARMONICS_UNARY(sin)
HARMONICS_UNARY(cos)
HARMONICS_UNARY(tanh)
HARMONICS_UNARY(tan)
HARMONICS_UNARY(asin)
HARMONICS_UNARY(acos)
HARMONICS_UNARY(atan)
HARMONICS_UNARY(sinh)
HARMONICS_UNARY(cosh)
HARMONICS_UNARY(asinh)
HARMONICS_UNARY(acosh)
HARMONICS_UNARY(atanh)
HARMONICS_UNARY(erf)
HARMONICS_UNARY(logistic)  // 1 / (1 + exp(-x))
HARMONICS_UNARY(is_nan)    // bool results
HARMONICS_UNARY(is_inf)    // either sign
HARMONICS_UNARY(logical_not)
HARMONICS_UNARY(stop_gradient)
#undef HARMONICS_UNARY

namespace detail {
HARMONICS_FACE inline Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  const uint32_t skip = longer.rank() - shorter.rank();
  for (uint32_t i = 0; i < shorter.rank(); ++i) {
    const int64_t x = longer[skip + i], y = shorter[i];
    if (x != y && x != 1 && y != 1)
      throw Error(ErrorKind::Shape,
                  std::string(op) + ": shapes " + a.str() + " and " + b.str() + " do not fit together");
    out[skip + i] = x == 1 ? y : x;
  }
  return out;
}
HARMONICS_FACE inline HTensor binary(const char* op, const HTensor& a, const HTensor& b) {
  const Shape s = broadcast_shape(op, a.shape(), b.shape());
  return call1(op, {broadcast(a, s), broadcast(b, s)});
}
HARMONICS_FACE inline HTensor number_like(const HTensor& x, double value) { return full(x.dtype(), x.shape(), value); }
}  // namespace detail

#define HARMONICS_BINARY(name)                                                                                   \
  HARMONICS_FACE inline HTensor name(const HTensor& a, const HTensor& b) { return detail::binary(#name, a, b); } \
  HARMONICS_FACE inline HTensor name(const HTensor& a, double b) {                                               \
    return call1(#name, {a, detail::number_like(a, b)});                                                         \
  }                                                                                                              \
  HARMONICS_FACE inline HTensor name(double a, const HTensor& b) {                                               \
    return call1(#name, {detail::number_like(b, a), b});                                                         \
  }
HARMONICS_BINARY(add)
HARMONICS_BINARY(sub)
HARMONICS_BINARY(mul)
HARMONICS_BINARY(div)
HARMONICS_BINARY(pow)
HARMONICS_BINARY(maximum)
HARMONICS_BINARY(minimum)
HARMONICS_BINARY(remainder)  // sign of the dividend, as C's fmod
HARMONICS_BINARY(equal)      // bool results
HARMONICS_BINARY(less)
HARMONICS_BINARY(less_equal)
HARMONICS_BINARY(logical_and)
HARMONICS_BINARY(logical_or)
HARMONICS_BINARY(logical_xor)
HARMONICS_BINARY(atan2)  // (y, x): the angle of the point (x, y)
// Integers only. Shifts by the width of the type or more, and by negative amounts, shift out all bits.
HARMONICS_BINARY(bit_and)
HARMONICS_BINARY(bit_or)
HARMONICS_BINARY(bit_xor)
HARMONICS_BINARY(shift_left)
HARMONICS_BINARY(shift_right_logical)     // fills with zeros
HARMONICS_BINARY(shift_right_arithmetic)  // fills with the sign
#undef HARMONICS_BINARY

#define HARMONICS_OPERATOR(sign, name)                                                                   \
  HARMONICS_FACE inline HTensor operator sign(const HTensor& a, const HTensor& b) { return name(a, b); } \
  HARMONICS_FACE inline HTensor operator sign(const HTensor& a, double b) { return name(a, b); }         \
  HARMONICS_FACE inline HTensor operator sign(double a, const HTensor& b) { return name(a, b); }
HARMONICS_OPERATOR(+, add)
HARMONICS_OPERATOR(-, sub)
HARMONICS_OPERATOR(*, mul)
HARMONICS_OPERATOR(/, div)
#undef HARMONICS_OPERATOR
HARMONICS_FACE inline HTensor operator-(const HTensor& x) { return neg(x); }

// condition (bool) ? a : b, elementwise; all three broadcast.
HARMONICS_FACE inline HTensor select(const HTensor& condition, const HTensor& a, const HTensor& b) {
  Shape s = detail::broadcast_shape("select", a.shape(), b.shape());
  s = detail::broadcast_shape("select", condition.shape(), s);
  return call1("select", {broadcast(condition, s), broadcast(a, s), broadcast(b, s)});
}

// As select; numbers are broadcast.
HARMONICS_FACE inline HTensor where(const HTensor& condition, const HTensor& a, const HTensor& b) {
  return select(condition, a, b);
}
HARMONICS_FACE inline HTensor where(const HTensor& condition, const HTensor& a, double b) {
  return select(condition, a, full(a.dtype(), {}, b));
}
HARMONICS_FACE inline HTensor where(const HTensor& condition, double a, const HTensor& b) {
  return select(condition, full(b.dtype(), {}, a), b);
}
// Clamps x to [low, high]. A missing bound is std::nullopt or an empty tensor. If high < low, the result is high. NaN
// is propagated. As in PyTorch, the gradient is 1 within the closed interval; outside it goes to the bound if that is a
// tensor.
HARMONICS_FACE inline HTensor clamp(const HTensor& x, const HTensor& low, const HTensor& high) {
  HTensor y = x;
  if (low) y = select(less(y, low), low, y);
  if (high) y = select(less(high, y), high, y);
  return y;
}
HARMONICS_FACE inline HTensor clamp(const HTensor& x, std::optional<double> low, std::optional<double> high) {
  const auto bound = [&](std::optional<double> value) { return value ? full(x.dtype(), {}, *value) : HTensor(); };
  return clamp(x, bound(low), bound(high));
}

// ---- reductions -----------------------------------------------------------------------------------------------------
#define HARMONICS_REDUCTION(name)                                                                             \
  HARMONICS_FACE inline HTensor name(const HTensor& x, const std::vector<int64_t>& axes, bool keep = false) { \
    return call1(#name, {x}, Attributes().set("axes", axes).set("keep", keep));                               \
  }
HARMONICS_REDUCTION(reduce_sum)
HARMONICS_REDUCTION(reduce_max)
HARMONICS_REDUCTION(reduce_min)
HARMONICS_REDUCTION(reduce_prod)
#undef HARMONICS_REDUCTION
// Returns the axes [first, rank).
HARMONICS_FACE inline std::vector<int64_t> axes_from(const HTensor& x, int64_t first) {
  std::vector<int64_t> axes;
  for (int64_t i = first; i < static_cast<int64_t>(x.rank()); ++i) axes.push_back(i);
  return axes;
}
HARMONICS_FACE inline HTensor reduce_mean(const HTensor& x, const std::vector<int64_t>& axes, bool keep = false) {
  double n = 1;
  for (int64_t a : axes) n *= static_cast<double>(x.shape()[static_cast<uint32_t>(a)]);
  return mul(reduce_sum(x, axes, keep), 1.0 / n);
}
// Returns the index (i64) of the first maximum along `axis`, which is removed.
HARMONICS_FACE inline HTensor argmax(const HTensor& x, int64_t axis) {
  return call1("argmax", {x}, Attributes().set("axis", axis));
}
HARMONICS_FACE inline HTensor argmin(const HTensor& x, int64_t axis) {
  return call1("argmin", {x}, Attributes().set("axis", axis));
}
HARMONICS_FACE inline HTensor cumsum(const HTensor& x, int64_t axis) {
  return call1("cumsum", {x}, Attributes().set("axis", axis));
}
// Windows of reduce_window. Lists have one entry per axis of x; empty lists mean strides and dilation of 1, and no
// padding.
struct Window {
  std::vector<int64_t> size, strides = {}, padding_low = {}, padding_high = {}, dilation = {};
};
// Reduces every window of x; `reduction` is "sum", "max" or "min". Padding is ignored: a window that contains only
// padding gives 0, the lowest or the highest number. NaN is propagated, as in reduce_max. The gradient of a maximum or
// minimum is distributed evenly over ties.
HARMONICS_FACE inline HTensor reduce_window(const HTensor& x, const char* reduction, const Window& window) {
  const auto filled = [&](const std::vector<int64_t>& list, int64_t value) {
    return list.empty() ? std::vector<int64_t>(window.size.size(), value) : list;
  };
  return call1("reduce_window", {x},
               Attributes()
                   .set("reduction", reduction)
                   .set("window", window.size)
                   .set("strides", filled(window.strides, 1))
                   .set("padding_low", filled(window.padding_low, 0))
                   .set("padding_high", filled(window.padding_high, 0))
                   .set("dilation", filled(window.dilation, 1)));
}
// Returns the k largest elements along the last axis, descending, and their indices (i64); ties: lowest index first.
HARMONICS_FACE inline std::pair<HTensor, HTensor> top_k(const HTensor& x, int64_t k) {
  auto r = call("top_k", {x}, Attributes().set("k", k));
  return {r.at(0), r.at(1)};
}
// Sorts along `axis`; returns the sorted elements and their indices (i64). Stable in both directions: equal elements
// keep their order. NaN is the largest.
HARMONICS_FACE inline std::pair<HTensor, HTensor> sort(const HTensor& x, int64_t axis, bool descending = false) {
  auto r = call("sort", {x}, Attributes().set("axis", axis).set("descending", descending));
  return {r.at(0), r.at(1)};
}
HARMONICS_FACE inline HTensor argsort(const HTensor& x, int64_t axis, bool descending = false) {
  return sort(x, axis, descending).second;
}

// ---- indexing -------------------------------------------------------------------------------------------------------
// x[..., indices, ...] along `axis`; result shape x.shape[:axis] + indices.shape + x.shape[axis+1:]. Indices out of
// range are an error in eager evaluation and clamped in compiled programs.
HARMONICS_FACE inline HTensor gather(const HTensor& x, const HTensor& indices, int64_t axis = 0) {
  return call1("gather", {x, indices}, Attributes().set("axis", axis));
}
// Returns x with updates added at indices along `axis`; the transpose of gather. Updates are added in index order, so
// the result is deterministic.
HARMONICS_FACE inline HTensor scatter_add(const HTensor& x, const HTensor& indices, const HTensor& updates,
                                          int64_t axis = 0) {
  return call1("scatter_add", {x, indices, updates}, Attributes().set("axis", axis));
}
// Returns slices of x at positions along several axes, as ONNX GatherND. The last axis of `indices` has k numbers, one
// for each of the k axes of x after the batch axes. Result shape: indices.shape[:-1] + x.shape[batch_axes + k:].
// Indices out of range: as gather.
HARMONICS_FACE inline HTensor gather_nd(const HTensor& x, const HTensor& indices, int64_t batch_axes = 0) {
  return call1("gather_nd", {x, indices}, Attributes().set("batch_axes", batch_axes));
}
// Returns x with `updates` written at the positions of gather_nd; their shape is that of gather_nd's result.
// `reduction`: "set" (of equal positions the last in row-major order remains), "add" (in that order), "max" or "min"
// (of the old element and all updates).
HARMONICS_FACE inline HTensor scatter_nd(const HTensor& x, const HTensor& indices, const HTensor& updates,
                                         const char* reduction = "set", int64_t batch_axes = 0) {
  return call1("scatter_nd", {x, indices, updates},
               Attributes().set("batch_axes", batch_axes).set("reduction", reduction));
}
// `starts`: an i64 vector with one number per axis, clamped so that the slice fits.
HARMONICS_FACE inline HTensor dynamic_slice(const HTensor& x, const HTensor& starts, const Shape& sizes) {
  return call1("dynamic_slice", {x, starts}, Attributes().set("sizes", sizes));
}
HARMONICS_FACE inline HTensor update_slice(const HTensor& x, const HTensor& update, const HTensor& starts) {
  return call1("update_slice", {x, update, starts});
}

// ---- contractions ---------------------------------------------------------------------------------------------------
// StableHLO dot_general. Result axes: batch, free axes of a, free axes of b. Sums are f32 (f64 for f64).
// Contract 1.5: operands may have different floating-point types. Attributes: `out_dtype` ("f16", "bf16", "f32",
// "f64"), the type of the result, and `accumulate` ("f32", "f64"), the type of the sums. Without them, sums are f64 if
// an operand is f64, else f32; the result has the operands' type, or that of the sums if the operands differ.
HARMONICS_FACE inline HTensor dot(const HTensor& a, const HTensor& b, const std::vector<int64_t>& a_contract,
                                  const std::vector<int64_t>& b_contract, const std::vector<int64_t>& a_batch = {},
                                  const std::vector<int64_t>& b_batch = {}) {
  return call1("dot", {a, b},
               Attributes()
                   .set("lhs_contract", a_contract)
                   .set("rhs_contract", b_contract)
                   .set("lhs_batch", a_batch)
                   .set("rhs_batch", b_batch));
}
// [..., m, k] x [..., k, n] with equal leading axes.
HARMONICS_FACE inline HTensor matmul(const HTensor& a, const HTensor& b) {
  const int64_t r = a.rank();
  std::vector<int64_t> batch;
  for (int64_t i = 0; i + 2 < r; ++i) batch.push_back(i);
  return dot(a, b, {r - 1}, {r - 2}, batch, batch);
}

// ---- loops ----------------------------------------------------------------------------------------------------------
namespace detail {
HARMONICS_FACE inline std::vector<hx_value*> raw_of(const std::vector<HTensor>& list) {
  std::vector<hx_value*> raw;
  for (const HTensor& t : list) raw.push_back(t.raw());
  return raw;
}
HARMONICS_FACE inline std::vector<HTensor> adopted(hx_value* const* values, uint32_t n) {
  std::vector<HTensor> list;
  for (uint32_t i = 0; i < n; ++i) list.push_back(HTensor::adopt(values[i]));
  return list;
}
template <typename Body>
HARMONICS_FACE hx_status loop_step(Body& body, size_t n_carries, hx_value* const* operands, uint32_t n, hx_value** outs,
                                   uint32_t* n_outs) {
  return guarded([&] {
    std::vector<HTensor> carries, slices;
    for (uint32_t i = 0; i < n; ++i) (i < n_carries ? carries : slices).push_back(HTensor::borrow(operands[i]));
    std::vector<HTensor> results = body(carries, slices);
    if (results.size() > HX_MAX_LOOP_RESULTS)
      throw Error(ErrorKind::Plugin, "scan: the body gave " + std::to_string(results.size()) + " results; at most " +
                                         std::to_string(HX_MAX_LOOP_RESULTS) + " are possible");
    *n_outs = static_cast<uint32_t>(results.size());
    for (size_t i = 0; i < results.size(); ++i) outs[i] = results[i].release();
    return HX_OK;
  });
}
}  // namespace detail

// Loops over the first axis of `xs`, which all have the same length. Each step calls body(carries, slices) with one
// slice of each of xs. The body returns the next carries, of the same types, then the outputs of the step. Results: the
// carries after the last step, then each output for all steps along a new first axis. The body is traced once and
// cannot read values; other tensors that it uses are constants of the loop. Attributes: "length", required without xs;
// "reverse": iterates from the last slice; outputs have the order of `xs`. The gradient is a loop in the reverse
// direction and needs the carries of all steps. A program contains the body once, for any length.
template <typename Body, typename = std::enable_if_t<
                             std::is_invocable_v<Body&, const std::vector<HTensor>&, const std::vector<HTensor>&>>>
HARMONICS_FACE std::vector<HTensor> scan(Body&& body, const std::vector<HTensor>& carries,
                                         const std::vector<HTensor>& xs, const Attributes& attributes = {}) {
  const hx_api* api = detail::api();
  if (api->struct_size < offsetof(hx_api, scan) + sizeof api->scan)
    throw Error(ErrorKind::Plugin, "scan: this version of Harmonics has no loops for plugins; they need contract 1.5");
  struct Loop {
    std::remove_reference_t<Body>& body;
    size_t carries;
  } loop{body, carries.size()};
  hx_loop_body step{};
  step.struct_size = sizeof step;
  step.self = &loop;
  step.step = [](void* self, hx_value* const* operands, uint32_t n, hx_value** outs, uint32_t* n_outs) {
    const Loop& l = *static_cast<Loop*>(self);
    return detail::loop_step(l.body, l.carries, operands, n, outs, n_outs);
  };
  std::vector<hx_attribute> items;
  const hx_attributes view = attributes.view(items);
  const std::vector<hx_value*> first = detail::raw_of(carries), along = detail::raw_of(xs);
  hx_value* out[HX_MAX_LOOP_RESULTS] = {};
  uint32_t n = 0;
  detail::check(api->scan(&step, &view, first.data(), static_cast<uint32_t>(first.size()), along.data(),
                          static_cast<uint32_t>(along.size()), out, &n));
  return detail::adopted(out, n);
}

// ---- functionals ----------------------------------------------------------------------------------------------------
// x [..., in], weight [out, in], bias [out] or empty.
HARMONICS_FACE inline HTensor linear(const HTensor& x, const HTensor& weight, const HTensor& bias = {}) {
  return bias ? call1("linear", {x, weight, bias}) : call1("linear", {x, weight});
}
HARMONICS_FACE inline HTensor relu(const HTensor& x) { return call1("relu", {x}); }
HARMONICS_FACE inline HTensor leaky_relu(const HTensor& x, double slope = 0.01) {
  return call1("leaky_relu", {x}, Attributes().set("slope", slope));
}
HARMONICS_FACE inline HTensor elu(const HTensor& x, double alpha = 1) {
  return call1("elu", {x}, Attributes().set("alpha", alpha));
}
HARMONICS_FACE inline HTensor sigmoid(const HTensor& x) { return logistic(x); }
HARMONICS_FACE inline HTensor silu(const HTensor& x) { return call1("silu", {x}); }
// `approximate`: "none" or "tanh".
HARMONICS_FACE inline HTensor gelu(const HTensor& x, const char* approximate = "none") {
  return call1("gelu", {x}, Attributes().set("approximate", approximate));
}
HARMONICS_FACE inline HTensor softplus(const HTensor& x) { return call1("softplus", {x}); }
HARMONICS_FACE inline HTensor softmax(const HTensor& x) { return call1("softmax", {x}); }          // last axis
HARMONICS_FACE inline HTensor log_softmax(const HTensor& x) { return call1("log_softmax", {x}); }  // last axis

// ---- methods --------------------------------------------------------------------------------------------------------
#define HARMONICS_METHOD(name) \
  inline HTensor HTensor::name() const { return harmonics::name(*this); }
#define HARMONICS_METHOD_OF_TWO(name)                                                        \
  inline HTensor HTensor::name(const HTensor& b) const { return harmonics::name(*this, b); } \
  inline HTensor HTensor::name(double b) const { return harmonics::name(*this, b); }
#define HARMONICS_REDUCING_METHOD(name)                                             \
  inline HTensor HTensor::name(const std::vector<int64_t>& axes, bool keep) const { \
    return harmonics::name(*this, axes, keep);                                      \
  }
HARMONICS_METHOD_OF_TWO(add)
HARMONICS_METHOD_OF_TWO(sub)
HARMONICS_METHOD_OF_TWO(mul)
HARMONICS_METHOD_OF_TWO(div)
HARMONICS_METHOD_OF_TWO(pow)
HARMONICS_METHOD_OF_TWO(maximum)
HARMONICS_METHOD_OF_TWO(minimum)
HARMONICS_METHOD(neg)
HARMONICS_METHOD(abs)
HARMONICS_METHOD(exp)
HARMONICS_METHOD(log)
HARMONICS_METHOD(sqrt)
HARMONICS_METHOD(tanh)
HARMONICS_METHOD(relu)
HARMONICS_METHOD(sigmoid)
HARMONICS_METHOD(silu)
HARMONICS_METHOD(gelu)
HARMONICS_METHOD(softmax)
HARMONICS_METHOD(log_softmax)
HARMONICS_REDUCING_METHOD(reduce_sum)
HARMONICS_REDUCING_METHOD(reduce_max)
HARMONICS_REDUCING_METHOD(reduce_min)
HARMONICS_REDUCING_METHOD(reduce_mean)
#undef HARMONICS_METHOD
#undef HARMONICS_METHOD_OF_TWO
#undef HARMONICS_REDUCING_METHOD
inline HTensor HTensor::matmul(const HTensor& b) const { return harmonics::matmul(*this, b); }
inline HTensor HTensor::clamp(std::optional<double> low, std::optional<double> high) const {
  return harmonics::clamp(*this, low, high);
}
inline HTensor HTensor::clamp(const HTensor& low, const HTensor& high) const {
  return harmonics::clamp(*this, low, high);
}
inline HTensor HTensor::reshape(const Shape& shape) const { return harmonics::reshape(*this, shape); }
inline HTensor HTensor::transpose(const std::vector<int64_t>& permutation) const {
  return harmonics::transpose(*this, permutation);
}
inline HTensor HTensor::broadcast(const Shape& shape) const { return harmonics::broadcast(*this, shape); }
inline HTensor HTensor::cast(DType dtype) const { return harmonics::cast(*this, dtype); }

}  // namespace harmonics
