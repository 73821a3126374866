// Layout operations, evaluated by strided copies.
#include <cstring>

#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/program/ops/fill.hpp"
#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/strided_copy.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;
using Tensors = std::span<const HTensor>;

// Returns a copy of the whole input, read with these strides, to the whole output.
StridedCopy onto(const View& out, const ConstView& in, const Strides& from_strides, int64_t from_offset = 0) {
  return {out.type.shape,
          in.data,
          from_strides,
          from_offset,
          out.data,
          row_major(out.type.shape),
          0,
          element_bytes(in.type.dtype)};
}

// ---- reshape

std::vector<TensorType> infer_reshape(const AttributeMap& a, Types in) {
  expect_operands(Op::reshape, in, 1);
  const TensorType out = checked_type(Op::reshape, in, in[0].dtype, a.integers("shape"));
  if (out.shape.count() != in[0].shape.count())
    misfit(Op::reshape, ErrorKind::Shape, in,
           "its " + quantity(in[0].shape.count(), "element") + " cannot fill the shape " + out.shape.str() + " of " +
               std::to_string(out.shape.count()));
  return {out};
}

void evaluate_reshape(const AttributeMap&, Inputs in, Outputs out) {
  if (const size_t bytes = in[0].type.bytes()) std::memcpy(out[0].data, in[0].data, bytes);
}

std::vector<HTensor> gradient_reshape(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  return {reshape(dy[0], in[0].shape())};
}

// ---- transpose

std::vector<TensorType> infer_transpose(const AttributeMap& a, Types in) {
  expect_operands(Op::transpose, in, 1);
  const auto& permutation = expect_list(Op::transpose, in, a, "permutation", in[0].shape.rank(), 0);
  expect_axes(Op::transpose, in, permutation, "permutation");
  TensorType out = in[0];
  for (uint32_t i = 0; i < out.shape.rank(); ++i) out.shape[i] = in[0].shape[static_cast<uint32_t>(permutation[i])];
  return {out};
}

void evaluate_transpose(const AttributeMap& a, Inputs in, Outputs out) {
  const auto& permutation = a.integers("permutation");
  const Strides strides = row_major(in[0].type.shape);
  Strides from{};
  for (size_t i = 0; i < permutation.size(); ++i) from[i] = strides[static_cast<size_t>(permutation[i])];
  onto(out[0], in[0], from).run();
}

std::vector<HTensor> gradient_transpose(const AttributeMap& a, Tensors, Tensors, Tensors dy) {
  const auto& permutation = a.integers("permutation");
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return {transpose(dy[0], inverse)};
}

// ---- broadcast

std::vector<TensorType> infer_broadcast(const AttributeMap& a, Types in) {
  expect_operands(Op::broadcast, in, 1);
  const TensorType out = checked_type(Op::broadcast, in, in[0].dtype, a.integers("shape"));
  const Shape& from = in[0].shape;
  bool fits = from.rank() <= out.shape.rank();
  for (uint32_t i = 0; fits && i < from.rank(); ++i) {
    const int64_t to = out.shape[out.shape.rank() - from.rank() + i];
    fits = from[i] == to || from[i] == 1;
  }
  if (!fits)
    misfit(Op::broadcast, ErrorKind::Shape, in,
           "it does not stretch to " + out.shape.str() + ": aligned at the last axis, every size must be equal or 1");
  return {out};
}

void evaluate_broadcast(const AttributeMap&, Inputs in, Outputs out) {
  const Shape& from = in[0].type.shape;
  const Strides strides = row_major(from);
  const uint32_t skip = out[0].type.shape.rank() - from.rank();
  Strides stretched{};
  for (uint32_t i = 0; i < from.rank(); ++i) stretched[skip + i] = from[i] == 1 ? 0 : strides[i];
  onto(out[0], in[0], stretched).run();
}

std::vector<HTensor> gradient_broadcast(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  const Shape from = in[0].shape(), to = dy[0].shape();
  const uint32_t skip = to.rank() - from.rank();
  std::vector<int64_t> axes;
  for (uint32_t i = 0; i < to.rank(); ++i)
    if (i < skip || (from[i - skip] == 1 && to[i] != 1)) axes.push_back(i);
  return {reshape(axes.empty() ? dy[0] : reduce_sum(dy[0], axes), from)};
}

// ---- slice

std::vector<TensorType> infer_slice(const AttributeMap& a, Types in) {
  expect_operands(Op::slice, in, 1);
  const uint32_t rank = in[0].shape.rank();
  const auto& starts = expect_list(Op::slice, in, a, "starts", rank, 0);
  const auto& limits = expect_list(Op::slice, in, a, "limits", rank, 0);
  const auto& strides = expect_list(Op::slice, in, a, "strides", rank, 1);
  TensorType out = in[0];
  for (uint32_t i = 0; i < rank; ++i) {
    if (starts[i] > limits[i] || limits[i] > in[0].shape[i])
      misfit(Op::slice, ErrorKind::Shape, in,
             "along axis " + std::to_string(i) + ", start " + std::to_string(starts[i]) + " <= limit " +
                 std::to_string(limits[i]) + " <= size " + std::to_string(in[0].shape[i]) + " must hold");
    out.shape[i] = limits[i] == starts[i] ? 0 : (limits[i] - starts[i] - 1) / strides[i] + 1;
  }
  return {out};
}

void evaluate_slice(const AttributeMap& a, Inputs in, Outputs out) {
  const auto &starts = a.integers("starts"), &strides = a.integers("strides");
  Strides from = row_major(in[0].type.shape);
  int64_t offset = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    offset += starts[i] * from[i];
    from[i] *= strides[i];
  }
  onto(out[0], in[0], from, offset).run();
}

std::vector<HTensor> gradient_slice(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  const auto &starts = a.integers("starts"), &strides = a.integers("strides");
  const Shape from = in[0].shape(), taken = dy[0].shape();
  std::vector<int64_t> high(starts.size()), interior(starts.size());
  for (uint32_t i = 0; i < taken.rank(); ++i) {
    const int64_t spanned = taken[i] == 0 ? 0 : (taken[i] - 1) * strides[i] + 1;
    interior[i] = taken[i] < 2 ? 0 : strides[i] - 1;
    high[i] = from[i] - starts[i] - spanned;
  }
  return {pad(dy[0], starts, high, 0, interior)};
}

// ---- pad

std::vector<TensorType> infer_pad(const AttributeMap& a, Types in) {
  expect_operands(Op::pad, in, 1);
  const uint32_t rank = in[0].shape.rank();
  const auto& low = expect_list(Op::pad, in, a, "low", rank, 0);
  const auto& high = expect_list(Op::pad, in, a, "high", rank, 0);
  const auto& interior = expect_list(Op::pad, in, a, "interior", rank, 0);
  a.number("value");
  std::vector<int64_t> dims(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    const int64_t gaps = in[0].shape[i] == 0 ? 0 : in[0].shape[i] - 1;
    int64_t between = 0;
    if (__builtin_mul_overflow(gaps, interior[i], &between) ||
        __builtin_add_overflow(between, in[0].shape[i], &between) ||
        __builtin_add_overflow(between, low[i], &between) || __builtin_add_overflow(between, high[i], &dims[i]))
      misfit(Op::pad, ErrorKind::Shape, in, "the padded size of axis " + std::to_string(i) + " overflows");
  }
  return {checked_type(Op::pad, in, in[0].dtype, dims)};
}

void evaluate_pad(const AttributeMap& a, Inputs in, Outputs out) {
  const auto &low = a.integers("low"), &interior = a.integers("interior");
  fill_elements(out[0].type.dtype, out[0].data, out[0].type.shape.count(), a.number("value"));
  StridedCopy copy{in[0].type.shape,
                   in[0].data,
                   row_major(in[0].type.shape),
                   0,
                   out[0].data,
                   row_major(out[0].type.shape),
                   0,
                   element_bytes(in[0].type.dtype)};
  for (size_t i = 0; i < low.size(); ++i) {
    copy.to_offset += low[i] * copy.to_strides[i];
    copy.to_strides[i] *= interior[i] + 1;
  }
  copy.run();
}

std::vector<HTensor> gradient_pad(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  const auto &low = a.integers("low"), &interior = a.integers("interior");
  const Shape from = in[0].shape();
  std::vector<int64_t> limits(low.size()), strides(low.size());
  for (uint32_t i = 0; i < from.rank(); ++i) {
    strides[i] = interior[i] + 1;
    limits[i] = from[i] == 0 ? low[i] : low[i] + (from[i] - 1) * strides[i] + 1;
  }
  return {slice(dy[0], low, limits, strides)};
}

// ---- concat

std::vector<TensorType> infer_concat(const AttributeMap& a, Types in) {
  if (in.empty()) misfit(Op::concat, ErrorKind::Type, in, "at least one is needed");
  expect_plain(Op::concat, in);
  const int64_t axis = expect_axis(Op::concat, in, a.integer("axis"));
  std::vector<int64_t> dims = in[0].shape.vector();
  for (size_t k = 1; k < in.size(); ++k) {
    const TensorType& t = in[k];
    expect_same_dtype(Op::concat, in, 0, k);
    bool fits = t.shape.rank() == in[0].shape.rank();
    for (uint32_t i = 0; fits && i < t.shape.rank(); ++i) fits = i == axis || t.shape[i] == in[0].shape[i];
    if (!fits)
      misfit(Op::concat, ErrorKind::Shape, in,
             "all sizes but those of axis " + std::to_string(axis) + " must be equal");
    int64_t& joined = dims[static_cast<size_t>(axis)];
    if (__builtin_add_overflow(joined, t.shape[static_cast<uint32_t>(axis)], &joined))
      misfit(Op::concat, ErrorKind::Shape, in, "the joined size overflows");
  }
  return {checked_type(Op::concat, in, in[0].dtype, dims)};
}

void evaluate_concat(const AttributeMap& a, Inputs in, Outputs out) {
  const auto axis = static_cast<uint32_t>(a.integer("axis"));
  const Strides to = row_major(out[0].type.shape);
  int64_t offset = 0;
  for (const ConstView& x : in) {
    const Shape& shape = x.type.shape;
    StridedCopy{shape, x.data, row_major(shape), 0, out[0].data, to, offset, element_bytes(x.type.dtype)}.run();
    offset += shape[axis] * to[axis];
  }
}

std::vector<HTensor> gradient_concat(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  const int64_t axis = a.integer("axis");
  std::vector<HTensor> dx;
  int64_t start = 0;
  for (const HTensor& x : in) {
    const int64_t limit = start + x.shape()[static_cast<uint32_t>(axis)];
    dx.push_back(slice_axis(dy[0], axis, start, limit));
    start = limit;
  }
  return dx;
}

// ---- reverse

std::vector<TensorType> infer_reverse(const AttributeMap& a, Types in) {
  expect_operands(Op::reverse, in, 1);
  expect_axes(Op::reverse, in, a.integers("axes"), "axes");
  return {in[0]};
}

void evaluate_reverse(const AttributeMap& a, Inputs in, Outputs out) {
  Strides from = row_major(in[0].type.shape);
  int64_t offset = 0;
  for (const int64_t axis : a.integers("axes")) {
    const auto i = static_cast<uint32_t>(axis);
    offset += (in[0].type.shape[i] - 1) * from[i];
    from[i] = -from[i];
  }
  onto(out[0], in[0], from, offset).run();
}

std::vector<HTensor> gradient_reverse(const AttributeMap& a, Tensors, Tensors, Tensors dy) {
  return {reverse(dy[0], a.integers("axes"))};
}

}  // namespace

OpRow layout_row(Op op) {
  switch (op) {
    case Op::reshape:
      return {op, {}, {}, infer_reshape, evaluate_reshape, gradient_reshape};
    case Op::transpose:
      return {op, {}, {}, infer_transpose, evaluate_transpose, gradient_transpose};
    case Op::broadcast:
      return {op, {}, {}, infer_broadcast, evaluate_broadcast, gradient_broadcast};
    case Op::slice:
      return {op, {}, {}, infer_slice, evaluate_slice, gradient_slice};
    case Op::pad:
      return {op, {}, {}, infer_pad, evaluate_pad, gradient_pad};
    case Op::concat:
      return {op, {}, {}, infer_concat, evaluate_concat, gradient_concat};
    case Op::reverse:
      return {op, {}, {}, infer_reverse, evaluate_reverse, gradient_reverse};
    default:
      throw Error(ErrorKind::Internal, "no layout operation");
  }
}

}  // namespace harmonics::engine
