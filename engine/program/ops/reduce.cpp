// Reductions. Evaluated in index order, so that results are deterministic.
#include <algorithm>
#include <memory>

#include <harmonics/ops.hpp>

#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/reduction_rules.hpp"
#include "engine/program/ops/walk.hpp"
#include "engine/program/ops/window.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;
using Tensors = std::span<const HTensor>;

// ---- reduce_*

template <Op kOp>
std::vector<TensorType> infer_reduction(const AttributeMap& a, Types in) {
  constexpr bool kExtreme = kOp == Op::reduce_max || kOp == Op::reduce_min;
  expect_operands(kOp, in, 1);
  if (!kExtreme) expect_number(kOp, in);
  const std::vector<bool> reduced = expect_axes(kOp, in, a.integers("axes"), "axes");
  const bool keep = a.flag("keep");
  Shape shape;
  for (uint32_t i = 0; i < in[0].shape.rank(); ++i) {
    if (kExtreme && reduced[i] && in[0].shape[i] == 0)
      misfit(kOp, ErrorKind::Shape, in,
             "axis " + std::to_string(i) + " is empty and has no largest or smallest element");
    if (!reduced[i]) shape.push_back(in[0].shape[i]);
    if (reduced[i] && keep) shape.push_back(1);
  }
  return {{in[0].dtype, shape}};
}

// Returns strides of the result in terms of the input's axes: zero along reduced axes.
Strides result_strides(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape kept = shape;
  for (const int64_t axis : axes) kept[static_cast<uint32_t>(axis)] = 1;
  Strides strides = row_major(kept);
  for (const int64_t axis : axes) strides[static_cast<size_t>(axis)] = 0;
  return strides;
}

template <typename Rule, typename T>
void reduce(const ConstView& in, const View& out, const Strides& strides) {
  using S = typename Rule::template State<T>;
  const auto count = static_cast<size_t>(out.type.shape.count());
  // If nothing is reduced, copy the elements, which preserves -0.
  if (in.type.shape.count() == out.type.shape.count()) {
    std::copy_n(static_cast<const T*>(in.data), count, static_cast<T*>(out.data));
    return;
  }
  const std::unique_ptr<S[]> states(new S[count]);
  std::fill_n(states.get(), count, Rule::template start<S>());
  const Shape& shape = in.type.shape;
  const int64_t length = shape.rank() ? shape.back() : 1, step = shape.rank() ? strides[shape.rank() - 1] : 0;
  const T* x = static_cast<const T*>(in.data);
  for_each_row(shape, strides, [&](int64_t number, int64_t offset) {
    for (int64_t i = 0; i < length; ++i) {
      S& state = states[static_cast<size_t>(offset + i * step)];
      state = Rule::join(state, static_cast<S>(x[number + i]));
    }
  });
  std::transform(states.get(), states.get() + count, static_cast<T*>(out.data), [](S s) { return static_cast<T>(s); });
}

template <typename Rule>
void evaluate_reduction(const AttributeMap& a, Inputs in, Outputs out) {
  const Strides strides = result_strides(in[0].type.shape, a.integers("axes"));
  visit_dtype(in[0].type.dtype,
              [&](auto type) { reduce<Rule, typename decltype(type)::type>(in[0], out[0], strides); });
}

// Restores the reduced axes with size 1, to broadcast over the input.
HTensor kept(const HTensor& result, const AttributeMap& a, const HTensor& x) {
  Shape shape = x.shape();
  for (const int64_t axis : a.integers("axes")) shape[static_cast<uint32_t>(axis)] = 1;
  return reshape(result, shape);
}

std::vector<HTensor> gradient_sum(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  return {broadcast(kept(dy[0], a, in[0]), in[0].shape())};
}

// Distributes the gradient equally over ties.
std::vector<HTensor> gradient_extreme(const AttributeMap& a, Tensors in, Tensors out, Tensors dy) {
  const HTensor hits = cast(equal(in[0], kept(out[0], a, in[0])), in[0].dtype());
  return {kept(dy[0], a, in[0]) * hits / reduce_sum(hits, a.integers("axes"), true)};
}

// d/dx_i is the product of the other elements. Zeros are excluded from the product and counted: an element has a
// non-zero gradient if it is the only zero, or if there is no zero.
std::vector<HTensor> gradient_product(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  const HTensor& x = in[0];
  const HTensor zero = equal(x, 0.0), zeros = cast(zero, x.dtype());
  const HTensor safe = select(zero, full(x.dtype(), x.shape(), 1), x);
  const HTensor others = reduce_prod(safe, a.integers("axes"), true) / safe;
  const HTensor counts = equal(reduce_sum(zeros, a.integers("axes"), true), zeros);
  return {kept(dy[0], a, x) * select(counts, others, zeros_like(x))};
}

// ---- argmax, argmin

template <Op kOp>
std::vector<TensorType> infer_arg(const AttributeMap& a, Types in) {
  expect_operands(kOp, in, 1);
  const auto axis = static_cast<uint32_t>(expect_axis(kOp, in, a.integer("axis")));
  if (in[0].shape[axis] == 0)
    misfit(kOp, ErrorKind::Shape, in,
           "axis " + std::to_string(axis) + " is empty and has no largest or smallest element");
  std::vector<int64_t> dims = in[0].shape.vector();
  dims.erase(dims.begin() + axis);
  return {{DType::I64, Shape(dims)}};
}

template <bool kLargest, typename T>
void find_extremes(const T* x, int64_t* out, const AxisView& view) {
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      const T* lane = x + o * view.size * view.inner + i;
      int64_t best = 0;
      for (int64_t k = 1; k < view.size; ++k) {
        if (beats<kLargest>(static_cast<Computed<T>>(lane[k * view.inner]),
                            static_cast<Computed<T>>(lane[best * view.inner])))
          best = k;
      }
      out[o * view.inner + i] = best;
    }
  }
}

template <bool kLargest>
void evaluate_arg(const AttributeMap& a, Inputs in, Outputs out) {
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    find_extremes<kLargest>(static_cast<const T*>(in[0].data), static_cast<int64_t*>(out[0].data),
                            AxisView(in[0].type.shape, a.integer("axis")));
  });
}

// ---- cumsum

std::vector<TensorType> infer_cumsum(const AttributeMap& a, Types in) {
  expect_operands(Op::cumsum, in, 1);
  expect_number(Op::cumsum, in);
  expect_axis(Op::cumsum, in, a.integer("axis"));
  return {in[0]};
}

template <typename T>
void running_sums(const T* x, T* out, const AxisView& view) {
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      Accumulator<T> sum = 0;
      for (int64_t k = 0; k < view.size; ++k) {
        const int64_t at = (o * view.size + k) * view.inner + i;
        sum += static_cast<Accumulator<T>>(x[at]);
        out[at] = static_cast<T>(sum);
      }
    }
  }
}

void evaluate_cumsum(const AttributeMap& a, Inputs in, Outputs out) {
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    running_sums(static_cast<const T*>(in[0].data), static_cast<T*>(out[0].data),
                 AxisView(in[0].type.shape, a.integer("axis")));
  });
}

std::vector<HTensor> gradient_cumsum(const AttributeMap& a, Tensors, Tensors, Tensors dy) {
  const int64_t axis = a.integer("axis");
  return {reverse(cumsum(reverse(dy[0], {axis}), axis), {axis})};
}

}  // namespace

OpRow reduce_row(Op op) {
  switch (op) {
    case Op::reduce_sum:
      return {op, {}, {}, infer_reduction<Op::reduce_sum>, evaluate_reduction<Sum>, gradient_sum};
    case Op::reduce_max:
      return {op, {}, {}, infer_reduction<Op::reduce_max>, evaluate_reduction<Extreme<true>>, gradient_extreme};
    case Op::reduce_min:
      return {op, {}, {}, infer_reduction<Op::reduce_min>, evaluate_reduction<Extreme<false>>, gradient_extreme};
    case Op::reduce_prod:
      return {op, {}, {}, infer_reduction<Op::reduce_prod>, evaluate_reduction<Product>, gradient_product};
    case Op::argmax:
      return {op, {}, {}, infer_arg<Op::argmax>, evaluate_arg<true>, nullptr};
    case Op::argmin:
      return {op, {}, {}, infer_arg<Op::argmin>, evaluate_arg<false>, nullptr};
    case Op::cumsum:
      return {op, {}, {}, infer_cumsum, evaluate_cumsum, gradient_cumsum};
    case Op::reduce_window:
      return window_row(op);
    default:
      throw Error(ErrorKind::Internal, "no reduction");
  }
}

}  // namespace harmonics::engine
