// gather_nd, scatter_nd: positions in several axes, given by tensors at run time.
#include "engine/program/ops/index_nd.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/program/ops/accumulator.hpp"
#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/walk.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;
using Tensors = std::span<const HTensor>;

constexpr const char* kReductions[] = {"set", "add", "max", "min"};

// Views x as [batches, rows, inner]. Each batch has `places` positions, of k indices each, which select a row.
struct Places {
  uint32_t batch_axes, k;
  Shape axes;  // the k indexed axes
  int64_t batches, rows, inner, places;

  Places(const AttributeMap& a, const Shape& x, const Shape& indices)
      : batch_axes(static_cast<uint32_t>(a.integer("batch_axes", 0))),
        k(static_cast<uint32_t>(indices.back())),
        axes(x.slice(batch_axes, batch_axes + k)),
        batches(x.slice(0, batch_axes).count()),
        rows(axes.count()),
        inner(x.from(batch_axes + k).count()),
        places(indices.slice(batch_axes, indices.rank() - 1).count()) {}

  // Returns the row in [0, batches * rows) of every position, in row-major order. Clamps indices.
  std::vector<int64_t> rows_of(const ConstView& indices) const {
    std::vector<int64_t> result(static_cast<size_t>(batches * places));
    visit_dtype(indices.type.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      const T* from = static_cast<const T*>(indices.data);
      for (int64_t p = 0; p < batches * places; ++p) {
        int64_t row = p / places;
        for (uint32_t i = 0; i < k; ++i) row = row * axes[i] + clamped(*from++, axes[i]);
        result[static_cast<size_t>(p)] = row;
      }
    });
    return result;
  }

 private:
  template <typename T>
  static int64_t clamped(T index, int64_t size) {
    if constexpr (std::is_unsigned_v<T>)
      return static_cast<int64_t>(std::min<uint64_t>(index, static_cast<uint64_t>(size - 1)));
    else
      return std::clamp<int64_t>(static_cast<int64_t>(index), 0, size - 1);
  }
};

// Returns the shape indices.shape[:-1] + x.shape[batch_axes + k:].
TensorType gathered_type(Op op, const AttributeMap& a, Types in) {
  expect_integer(op, in, 1);
  const Shape &x = in[0].shape, &indices = in[1].shape;
  const int64_t batch = a.integer("batch_axes", 0);
  if (indices.rank() == 0 || batch < 0 || batch >= static_cast<int64_t>(indices.rank()) ||
      batch > static_cast<int64_t>(x.rank()))
    misfit(op, ErrorKind::Shape, in,
           "batch_axes = " + std::to_string(batch) + " must be axes of both, before the indices' last axis");
  const auto b = static_cast<uint32_t>(batch);
  if (x.slice(0, b) != indices.slice(0, b))
    misfit(op, ErrorKind::Shape, in,
           "batch_axes = " + std::to_string(batch) + ": these first axes of both must be equal");
  const int64_t k = indices.back(), most = static_cast<int64_t>(x.rank()) - batch;
  if (k < 1 || k > most)
    misfit(op, ErrorKind::Shape, in,
           "the last axis of the indices holds " + quantity(k, "number") + " for each position; give 1 to " +
               std::to_string(most));
  const Shape axes = x.slice(b, b + static_cast<uint32_t>(k));
  if (axes.count() == 0 && indices.count() > 0)
    misfit(op, ErrorKind::Shape, in, "an indexed axis is empty and no index fits");
  std::vector<int64_t> dims = indices.slice(0, indices.rank() - 1).vector();
  for (uint32_t i = b + static_cast<uint32_t>(k); i < x.rank(); ++i) dims.push_back(x[i]);
  return checked_type(op, in, in[0].dtype, dims);
}

// ---- gather_nd

std::vector<TensorType> infer_gather_nd(const AttributeMap& a, Types in) {
  expect_operands(Op::gather_nd, in, 2);
  return {gathered_type(Op::gather_nd, a, in)};
}

void evaluate_gather_nd(const AttributeMap& a, Inputs in, Outputs out) {
  if (out[0].type.shape.count() == 0) return;
  const Places at(a, in[0].type.shape, in[1].type.shape);
  const size_t bytes = static_cast<size_t>(at.inner) * element_bytes(in[0].type.dtype);
  const char* x = static_cast<const char*>(in[0].data);
  char* y = static_cast<char*>(out[0].data);
  for (const int64_t row : at.rows_of(in[1])) {
    std::memcpy(y, x + static_cast<size_t>(row) * bytes, bytes);
    y += bytes;
  }
}

std::vector<HTensor> gradient_gather_nd(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  return {scatter_nd(zeros_like(in[0]), in[1], dy[0], "add", a.integer("batch_axes", 0)), HTensor()};
}

// ---- scatter_nd

std::vector<TensorType> infer_scatter_nd(const AttributeMap& a, Types in) {
  expect_operands(Op::scatter_nd, in, 3);
  const std::string reduction = a.text("reduction", "set");
  if (std::find(std::begin(kReductions), std::end(kReductions), reduction) == std::end(kReductions))
    throw Error(ErrorKind::Usage, "scatter_nd: there is no reduction '" + reduction + "'; use set, add, max or min");
  if (reduction != "set") expect_number(Op::scatter_nd, in, 0);
  expect_same_dtype(Op::scatter_nd, in, 0, 2);
  const TensorType updates = gathered_type(Op::scatter_nd, a, in);
  if (updates != in[2]) misfit(Op::scatter_nd, ErrorKind::Shape, in, "the updates must be " + updates.str());
  return {in[0]};
}

void set_rows(const ConstView& updates, const std::vector<int64_t>& rows, const View& y, size_t row_bytes) {
  const char* from = static_cast<const char*>(updates.data);
  for (const int64_t row : rows) {
    std::memcpy(static_cast<char*>(y.data) + static_cast<size_t>(row) * row_bytes, from, row_bytes);
    from += row_bytes;
  }
}

template <typename T>
void add_rows(const T* updates, const std::vector<int64_t>& rows, T* y, int64_t count, int64_t inner) {
  std::vector<Accumulator<T>> sums(y, y + count);
  for (const int64_t row : rows)
    for (int64_t i = 0; i < inner; ++i)
      sums[static_cast<size_t>(row * inner + i)] += static_cast<Accumulator<T>>(*updates++);
  std::transform(sums.begin(), sums.end(), y, [](auto sum) { return static_cast<T>(sum); });
}

// Propagates NaN, as reduce_max does.
template <bool kLargest, typename T>
void keep_extremes(const T* updates, const std::vector<int64_t>& rows, T* y, int64_t inner) {
  for (const int64_t row : rows) {
    for (int64_t i = 0; i < inner; ++i) {
      T& old = y[row * inner + i];
      const auto a = static_cast<Computed<T>>(old), b = static_cast<Computed<T>>(*updates++);
      const bool kept = a != a || (b == b && !(kLargest ? b > a : b < a));
      if (!kept) old = static_cast<T>(b);
    }
  }
}

void evaluate_scatter_nd(const AttributeMap& a, Inputs in, Outputs out) {
  const size_t bytes = in[0].type.bytes();
  if (bytes == 0) return;
  std::memcpy(out[0].data, in[0].data, bytes);
  if (in[2].type.shape.count() == 0) return;
  const Places at(a, in[0].type.shape, in[1].type.shape);
  const std::vector<int64_t> rows = at.rows_of(in[1]);
  const std::string reduction = a.text("reduction", "set");
  if (reduction == "set")
    return set_rows(in[2], rows, out[0], static_cast<size_t>(at.inner) * element_bytes(in[0].type.dtype));
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* updates = static_cast<const T*>(in[2].data);
    T* y = static_cast<T*>(out[0].data);
    if (reduction == "add")
      add_rows(updates, rows, y, in[0].type.shape.count(), at.inner);
    else if (reduction == "max")
      keep_extremes<true>(updates, rows, y, at.inner);
    else
      keep_extremes<false>(updates, rows, y, at.inner);
  });
}

// Returns, in the updates' shape, 1 for updates that remain in the result and 0 for overwritten ones. Scatters the
// numbers of the positions, so that the last number of a row is read back.
HTensor remaining(const HTensor& x, const HTensor& indices, const HTensor& updates, int64_t batch) {
  const Shape places = indices.shape().slice(0, indices.rank() - 1);
  const Shape rows = x.shape().slice(0, static_cast<uint32_t>(batch + indices.shape().back()));
  const HTensor numbers = reshape(iota(DType::I64, {places.count()}, 0), places);
  const HTensor last = scatter_nd(full(DType::I64, rows, -1), indices, numbers, "set", batch);
  const HTensor mask = cast(equal(gather_nd(last, indices, batch), numbers), x.dtype());
  Shape stretched = places;
  while (stretched.rank() < updates.rank()) stretched.push_back(1);
  return broadcast(reshape(mask, stretched), updates.shape());
}

// set: the remaining update receives the gradient. max, min: ties share it equally, as in reduce_max.
std::vector<HTensor> gradient_scatter_nd(const AttributeMap& a, Tensors in, Tensors out, Tensors dy) {
  const HTensor &x = in[0], &indices = in[1], &updates = in[2];
  const int64_t batch = a.integer("batch_axes", 0);
  const std::string reduction = a.text("reduction", "set");
  if (reduction == "add") return {dy[0], HTensor(), gather_nd(dy[0], indices, batch)};
  if (reduction == "set")
    return {scatter_nd(dy[0], indices, zeros_like(updates), "set", batch), HTensor(),
            gather_nd(dy[0], indices, batch) * remaining(x, indices, updates, batch)};
  const HTensor kept = cast(equal(x, out[0]), x.dtype());
  const HTensor taken = cast(equal(updates, gather_nd(out[0], indices, batch)), x.dtype());
  const HTensor share = dy[0] / scatter_nd(kept, indices, taken, "add", batch);
  return {share * kept, HTensor(), gather_nd(share, indices, batch) * taken};
}

}  // namespace

OpRow index_nd_row(Op op) {
  switch (op) {
    case Op::gather_nd:
      return {op, {}, {}, infer_gather_nd, evaluate_gather_nd, gradient_gather_nd};
    case Op::scatter_nd:
      return {op, {}, {}, infer_scatter_nd, evaluate_scatter_nd, gradient_scatter_nd};
    default:
      throw Error(ErrorKind::Internal, "no index operation");
  }
}

}  // namespace harmonics::engine
