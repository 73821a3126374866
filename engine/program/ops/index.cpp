// Index operations: positions are given by tensors at run time.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <harmonics/ops.hpp>

#include "engine/program/ops/accumulator.hpp"
#include "engine/program/ops/index_nd.hpp"
#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/walk.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;
using Tensors = std::span<const HTensor>;

// Reads integers of any width, clamped to [0, last]. Immediate calls have already rejected others.
std::vector<int64_t> read_indices(const ConstView& view, int64_t last) {
  std::vector<int64_t> out(static_cast<size_t>(view.type.shape.count()));
  visit_dtype(view.type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* from = static_cast<const T*>(view.data);
    const auto clamped = [last](T index) -> int64_t {
      if constexpr (std::is_unsigned_v<T>)
        return static_cast<int64_t>(std::min<uint64_t>(index, static_cast<uint64_t>(last)));
      return std::clamp<int64_t>(static_cast<int64_t>(index), 0, last);
    };
    std::transform(from, from + out.size(), out.begin(), clamped);
  });
  return out;
}

// Returns the shape x[:axis] + indices + x[axis+1:].
TensorType gathered_type(Op op, Types in, int64_t axis) {
  std::vector<int64_t> dims = in[0].shape.vector();
  if (dims[static_cast<size_t>(axis)] == 0 && in[1].shape.count() > 0)
    misfit(op, ErrorKind::Shape, in, "axis " + std::to_string(axis) + " is empty and no index fits");
  const auto at = dims.erase(dims.begin() + axis);
  dims.insert(at, in[1].shape.begin(), in[1].shape.end());
  return checked_type(op, in, in[0].dtype, dims);
}

// ---- gather

std::vector<TensorType> infer_gather(const AttributeMap& a, Types in) {
  expect_operands(Op::gather, in, 2);
  expect_integer(Op::gather, in, 1);
  if (is_stored(in[1].dtype) || (is_stored(in[0].dtype) && a.integer("axis") + 1 >= in[0].shape.rank()))
    misfit(Op::gather, ErrorKind::Type, in,
           std::string(dtype_name(in[0].dtype)) +
               " is a stored type, of which only whole rows are taken; cast it to f32 "
               "first");
  return {gathered_type(Op::gather, in, expect_axis(Op::gather, in, a.integer("axis")))};
}

void evaluate_gather(const AttributeMap& a, Inputs in, Outputs out) {
  if (out[0].type.shape.count() == 0) return;
  const AxisView x(in[0].type.shape, a.integer("axis"));
  const std::vector<int64_t> indices = read_indices(in[1], x.size - 1);
  const size_t row = run_bytes(in[0].type.dtype, x.inner);
  const char* from = static_cast<const char*>(in[0].data);
  char* to = static_cast<char*>(out[0].data);
  for (int64_t o = 0; o < x.outer; ++o) {
    for (const int64_t index : indices) {
      std::memcpy(to, from + static_cast<size_t>(o * x.size + index) * row, row);
      to += row;
    }
  }
}

std::vector<HTensor> gradient_gather(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  if (is_stored(in[0].dtype())) return {HTensor(), HTensor()};
  return {scatter_add(zeros_like(in[0]), in[1], dy[0], a.integer("axis")), HTensor()};
}

// ---- scatter_add

std::vector<TensorType> infer_scatter_add(const AttributeMap& a, Types in) {
  expect_operands(Op::scatter_add, in, 3);
  expect_number(Op::scatter_add, in, 0);
  expect_integer(Op::scatter_add, in, 1);
  expect_same_dtype(Op::scatter_add, in, 0, 2);
  const TensorType updates = gathered_type(Op::scatter_add, in, expect_axis(Op::scatter_add, in, a.integer("axis")));
  if (updates != in[2]) misfit(Op::scatter_add, ErrorKind::Shape, in, "the updates must be " + updates.str());
  return {in[0]};
}

template <typename T>
void scatter_into(std::vector<Accumulator<T>>& sums, const std::vector<int64_t>& indices, const T* from,
                  const AxisView& x) {
  for (int64_t o = 0; o < x.outer; ++o) {
    for (const int64_t index : indices) {
      Accumulator<T>* to = sums.data() + (o * x.size + index) * x.inner;
      for (int64_t i = 0; i < x.inner; ++i) to[i] += static_cast<Accumulator<T>>(from[i]);
      from += x.inner;
    }
  }
}

void evaluate_scatter_add(const AttributeMap& a, Inputs in, Outputs out) {
  const AxisView view(in[0].type.shape, a.integer("axis"));
  const std::vector<int64_t> indices = read_indices(in[1], std::max<int64_t>(0, view.size - 1));
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = static_cast<const T*>(in[0].data);
    std::vector<Accumulator<T>> sums(x, x + in[0].type.shape.count());
    scatter_into<T>(sums, indices, static_cast<const T*>(in[2].data), view);
    std::transform(sums.begin(), sums.end(), static_cast<T*>(out[0].data),
                   [](auto sum) { return static_cast<T>(sum); });
  });
}

std::vector<HTensor> gradient_scatter_add(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  return {dy[0], HTensor(), gather(dy[0], in[1], a.integer("axis"))};
}

// ---- dynamic_slice, update_slice

void expect_starts(Op op, Types in, size_t which) {
  expect_integer(op, in, which);
  if (in[which].shape != Shape{static_cast<int64_t>(in[0].shape.rank())})
    misfit(op, ErrorKind::Shape, in,
           "the starts must be a vector of " + std::to_string(in[0].shape.rank()) + ", one per axis");
}

// Returns the offset in elements of a block of `sizes` in `shape`. Clamps starts so that the block fits.
int64_t block_offset(const ConstView& starts, const Shape& shape, const Shape& sizes) {
  const std::vector<int64_t> wanted = read_indices(starts, INT64_MAX);
  const Strides strides = row_major(shape);
  int64_t offset = 0;
  for (uint32_t i = 0; i < shape.rank(); ++i) offset += std::min(wanted[i], shape[i] - sizes[i]) * strides[i];
  return offset;
}

void expect_block(Op op, Types in, const Shape& sizes) {
  bool fits = sizes.rank() == in[0].shape.rank();
  for (uint32_t i = 0; fits && i < sizes.rank(); ++i) fits = sizes[i] >= 0 && sizes[i] <= in[0].shape[i];
  if (!fits)
    misfit(op, ErrorKind::Shape, in,
           "a block of " + sizes.str() + " must have the rank of " + in[0].str() + " and fit inside it");
}

std::vector<TensorType> infer_dynamic_slice(const AttributeMap& a, Types in) {
  expect_operands(Op::dynamic_slice, in, 2);
  expect_starts(Op::dynamic_slice, in, 1);
  const TensorType out = checked_type(Op::dynamic_slice, in, in[0].dtype, a.integers("sizes"));
  expect_block(Op::dynamic_slice, in, out.shape);
  return {out};
}

void evaluate_dynamic_slice(const AttributeMap&, Inputs in, Outputs out) {
  const Shape &shape = in[0].type.shape, &sizes = out[0].type.shape;
  StridedCopy{sizes,
              in[0].data,
              row_major(shape),
              block_offset(in[1], shape, sizes),
              out[0].data,
              row_major(sizes),
              0,
              element_bytes(in[0].type.dtype)}
      .run();
}

std::vector<HTensor> gradient_dynamic_slice(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  return {update_slice(zeros_like(in[0]), dy[0], in[1]), HTensor()};
}

std::vector<TensorType> infer_update_slice(const AttributeMap&, Types in) {
  expect_operands(Op::update_slice, in, 3);
  expect_same_dtype(Op::update_slice, in, 0, 1);
  expect_starts(Op::update_slice, in, 2);
  expect_block(Op::update_slice, in, in[1].shape);
  return {in[0]};
}

void evaluate_update_slice(const AttributeMap&, Inputs in, Outputs out) {
  const Shape &shape = in[0].type.shape, &sizes = in[1].type.shape;
  if (const size_t bytes = in[0].type.bytes()) std::memcpy(out[0].data, in[0].data, bytes);
  StridedCopy{sizes,
              in[1].data,
              row_major(sizes),
              0,
              out[0].data,
              row_major(shape),
              block_offset(in[2], shape, sizes),
              element_bytes(in[0].type.dtype)}
      .run();
}

std::vector<HTensor> gradient_update_slice(const AttributeMap&, Tensors in, Tensors, Tensors dy) {
  return {update_slice(dy[0], zeros_like(in[1]), in[2]), dynamic_slice(dy[0], in[2], in[1].shape()), HTensor()};
}

// ---- top_k

std::vector<TensorType> infer_top_k(const AttributeMap& a, Types in) {
  expect_operands(Op::top_k, in, 1);
  expect_number(Op::top_k, in, 0);
  const int64_t k = a.integer("k");
  if (in[0].shape.rank() == 0 || k < 0 || k > in[0].shape.back())
    misfit(Op::top_k, ErrorKind::Shape, in,
           "the " + std::to_string(k) + " largest need a last axis of at least that length");
  Shape shape = in[0].shape;
  shape[shape.rank() - 1] = k;
  return {{in[0].dtype, shape}, {DType::I64, shape}};
}

// Orders indices for top_k: NaN counts as largest; on ties the lower index comes first.
template <typename T>
bool comes_first(const T* row, int64_t a, int64_t b) {
  if constexpr (is_float_element<T>) {
    const bool nan_a = std::isnan(static_cast<Computed<T>>(row[a])),
               nan_b = std::isnan(static_cast<Computed<T>>(row[b]));
    if (nan_a || nan_b) return nan_a && nan_b ? a < b : nan_a;
  }
  return row[a] > row[b] || (row[a] == row[b] && a < b);
}

template <typename T>
void top_k_row(const T* row, int64_t n, int64_t k, T* values, int64_t* indices) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(),
                    [&](int64_t a, int64_t b) { return comes_first(row, a, b); });
  for (int64_t i = 0; i < k; ++i) {
    indices[i] = order[static_cast<size_t>(i)];
    values[i] = row[indices[i]];
  }
}

void evaluate_top_k(const AttributeMap&, Inputs in, Outputs out) {
  const int64_t n = in[0].type.shape.back(), k = out[0].type.shape.back();
  if (out[0].type.shape.count() == 0) return;
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = static_cast<const T*>(in[0].data);
    for (int64_t row = 0; row < in[0].type.shape.count() / n; ++row)
      top_k_row(x + row * n, n, k, static_cast<T*>(out[0].data) + row * k,
                static_cast<int64_t*>(out[1].data) + row * k);
  });
}

// Scatters each value's gradient to its position. Rows are flattened so that one scatter suffices.
std::vector<HTensor> gradient_top_k(const AttributeMap& a, Tensors in, Tensors out, Tensors dy) {
  if (!dy[0]) return {HTensor()};
  const Shape shape = in[0].shape();
  const int64_t n = shape.back(), k = a.integer("k"), rows = shape.slice(0, shape.rank() - 1).count();
  const HTensor places = iota(DType::I64, {rows, k}, 0) * static_cast<double>(n) + reshape(out[1], {rows, k});
  const HTensor flat =
      scatter_add(full(in[0].dtype(), {rows * n}, 0), reshape(places, {rows * k}), reshape(dy[0], {rows * k}));
  return {reshape(flat, shape)};
}

// ---- sort

std::vector<TensorType> infer_sort(const AttributeMap& a, Types in) {
  expect_operands(Op::sort, in, 1);
  expect_number(Op::sort, in, 0);
  expect_axis(Op::sort, in, a.integer("axis"));
  return {in[0], {DType::I64, in[0].shape}};
}

// Orders elements for sort: NaN is the largest.
template <typename T>
bool is_less(T a, T b) {
  if constexpr (is_float_element<T>) {
    const auto x = static_cast<Computed<T>>(a), y = static_cast<Computed<T>>(b);
    return std::isnan(y) ? !std::isnan(x) : x < y;
  } else {
    return a < b;
  }
}

template <typename T>
void sort_lines(const AxisView& view, bool descending, const T* x, T* values, int64_t* indices) {
  std::vector<int64_t> order(static_cast<size_t>(view.size));
  for (int64_t line = 0; line < view.outer * view.inner; ++line) {
    const int64_t first = line / view.inner * view.size * view.inner + line % view.inner;
    const auto at = [&](int64_t i) { return x[first + i * view.inner]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t i, int64_t j) { return descending ? is_less(at(j), at(i)) : is_less(at(i), at(j)); });
    for (int64_t i = 0; i < view.size; ++i) {
      const int64_t from = order[static_cast<size_t>(i)];
      values[first + i * view.inner] = at(from);
      indices[first + i * view.inner] = from;
    }
  }
}

void evaluate_sort(const AttributeMap& a, Inputs in, Outputs out) {
  if (in[0].type.shape.count() == 0) return;
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    sort_lines(AxisView(in[0].type.shape, a.integer("axis")), a.flag("descending", false),
               static_cast<const T*>(in[0].data), static_cast<T*>(out[0].data), static_cast<int64_t*>(out[1].data));
  });
}

// As for top_k: one scatter over all elements, [outer, size, inner].
std::vector<HTensor> gradient_sort(const AttributeMap& a, Tensors in, Tensors out, Tensors dy) {
  if (!dy[0]) return {HTensor()};
  const Shape shape = in[0].shape();
  const AxisView view(shape, a.integer("axis"));
  const Shape seen{view.outer, view.size, view.inner};
  const HTensor lines = iota(DType::I64, seen, 0) * static_cast<double>(view.size) + reshape(out[1], seen);
  const HTensor places = lines * static_cast<double>(view.inner) + iota(DType::I64, seen, 2);
  const Shape flat{shape.count()};
  return {reshape(scatter_add(full(in[0].dtype(), flat, 0), reshape(places, flat), reshape(dy[0], flat)), shape)};
}

}  // namespace

OpRow index_row(Op op) {
  switch (op) {
    case Op::gather:
      return {op, {}, {}, infer_gather, evaluate_gather, gradient_gather};
    case Op::scatter_add:
      return {op, {}, {}, infer_scatter_add, evaluate_scatter_add, gradient_scatter_add};
    case Op::dynamic_slice:
      return {op, {}, {}, infer_dynamic_slice, evaluate_dynamic_slice, gradient_dynamic_slice};
    case Op::update_slice:
      return {op, {}, {}, infer_update_slice, evaluate_update_slice, gradient_update_slice};
    case Op::top_k:
      return {op, {}, {}, infer_top_k, evaluate_top_k, gradient_top_k};
    case Op::sort:
      return {op, {}, {}, infer_sort, evaluate_sort, gradient_sort};
    default:
      return index_nd_row(op);
  }
}

}  // namespace harmonics::engine
