// reduce_window: sums and extremes of windows over any axes, as StableHLO reduce_window and ONNX pooling.
#include "engine/program/ops/window.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <harmonics/ops.hpp>

#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/reduction_rules.hpp"
#include "engine/program/ops/strided_copy.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;
using Tensors = std::span<const HTensor>;
using Ints = std::vector<int64_t>;

// Windows sliding over all axes of a tensor.
struct WindowGrid {
  const Ints &window, &strides, &low, &high, &dilation;
  Shape x, places;

  WindowGrid(Types in, const AttributeMap& a, const Shape& shape)
      : window(list(in, a, "window", shape, 1)),
        strides(list(in, a, "strides", shape, 1)),
        low(list(in, a, "padding_low", shape, 0)),
        high(list(in, a, "padding_high", shape, 0)),
        dilation(list(in, a, "dilation", shape, 1)),
        x(shape) {
    for (uint32_t i = 0; i < x.rank(); ++i) {
      int64_t padded = 0, reach = 0;
      const bool overflow = __builtin_add_overflow(x[i], low[i], &padded) ||
                            __builtin_add_overflow(padded, high[i], &padded) ||
                            __builtin_mul_overflow(window[i] - 1, dilation[i], &reach);
      if (overflow || reach >= padded)
        misfit(Op::reduce_window, ErrorKind::Shape, in,
               "along axis " + std::to_string(i) + " a window of " + std::to_string(window[i]) + " with dilation " +
                   std::to_string(dilation[i]) + " is larger than the " + std::to_string(x[i]) +
                   " elements padded by " + std::to_string(low[i]) + " and " + std::to_string(high[i]));
      places.push_back((padded - reach - 1) / strides[i] + 1);
    }
  }

  int64_t padded(uint32_t axis) const { return x[axis] + low[axis] + high[axis]; }

  // Elements of x in a window along one axis: first, first + dilation ...
  struct Taps {
    int64_t first, count;
  };
  Taps taps(uint32_t axis, int64_t place) const {
    const int64_t start = place * strides[axis] - low[axis], step = dilation[axis];
    const int64_t begin = start >= 0 ? 0 : (-start + step - 1) / step;
    const int64_t end = start >= x[axis] ? 0 : std::min(window[axis], (x[axis] - 1 - start) / step + 1);
    return {start + begin * step, std::max<int64_t>(0, end - begin)};
  }

 private:
  static const Ints& list(Types in, const AttributeMap& a, const char* name, const Shape& shape, int64_t least) {
    return expect_list(Op::reduce_window, in, a, name, shape.rank(), least);
  }
};

std::vector<TensorType> infer_window(const AttributeMap& a, Types in) {
  expect_operands(Op::reduce_window, in, 1);
  expect_number(Op::reduce_window, in);
  const std::string& reduction = a.text("reduction");
  if (reduction != "sum" && reduction != "max" && reduction != "min")
    throw Error(ErrorKind::Usage, "reduce_window: there is no reduction '" + reduction + "'; use sum, max or min");
  return {checked_type(Op::reduce_window, in, in[0].dtype, WindowGrid(in, a, in[0].shape).places.vector())};
}

// Calls visit(offset in x) for every element of one window, in row-major order.
template <typename Visit>
void for_each_tap(const WindowGrid& grid, const Strides& strides, const Strides& place, Visit&& visit) {
  std::array<WindowGrid::Taps, HX_MAX_RANK> taps{};
  Strides at{};
  int64_t offset = 0;
  for (uint32_t i = 0; i < grid.x.rank(); ++i) {
    taps[i] = grid.taps(i, place[i]);
    if (taps[i].count == 0) return;
    offset += taps[i].first * strides[i];
  }
  for (;;) {
    visit(offset);
    uint32_t axis = grid.x.rank();
    while (axis-- > 0) {
      const int64_t step = grid.dilation[axis] * strides[axis];
      offset += step;
      if (++at[axis] < taps[axis].count) break;
      offset -= step * taps[axis].count;
      at[axis] = 0;
    }
    if (axis == UINT32_MAX) return;
  }
}

template <typename Reduction, typename T>
void reduce_windows(const WindowGrid& grid, const T* x, T* y) {
  using State = typename Reduction::template State<T>;
  const Strides strides = row_major(grid.x);
  Strides place{};
  for (int64_t n = grid.places.count(); n > 0; --n) {
    State state = Reduction::template start<State>();
    for_each_tap(grid, strides, place, [&](int64_t at) { state = Reduction::join(state, static_cast<State>(x[at])); });
    *y++ = static_cast<T>(state);
    for (uint32_t axis = grid.x.rank(); axis-- > 0;) {
      if (++place[axis] < grid.places[axis]) break;
      place[axis] = 0;
    }
  }
}

void evaluate_window(const AttributeMap& a, Inputs in, Outputs out) {
  const WindowGrid grid(std::span(&in[0].type, 1), a, in[0].type.shape);
  const std::string& reduction = a.text("reduction");
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = static_cast<const T*>(in[0].data);
    T* y = static_cast<T*>(out[0].data);
    if (reduction == "sum")
      reduce_windows<Sum>(grid, x, y);
    else if (reduction == "max")
      reduce_windows<Extreme<true>>(grid, x, y);
    else
      reduce_windows<Extreme<false>>(grid, x, y);
  });
}

// Sums dy over the windows that contain each element of x: a window sum with stride 1 over dy, spread by the strides
// and padded from the opposite end.
HTensor gradient_of_sum(const WindowGrid& grid, const HTensor& dy) {
  const uint32_t rank = grid.x.rank();
  Ints low(rank), high(rank), gaps(rank), starts(rank), limits(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    const int64_t reach = (grid.window[i] - 1) * grid.dilation[i];
    const int64_t spread = (grid.places[i] - 1) * grid.strides[i] + 1;
    const int64_t before = reach - grid.low[i], after = grid.x[i] + grid.low[i] - spread;
    gaps[i] = grid.strides[i] - 1;
    low[i] = std::max<int64_t>(0, before);
    high[i] = std::max<int64_t>(0, after);
    starts[i] = std::max<int64_t>(0, -before);
    limits[i] = starts[i] + grid.x[i] + reach;
  }
  const HTensor spread = slice(pad(dy, low, high, 0, gaps), starts, limits);
  return reduce_window(spread, "sum", {grid.window, {}, {}, {}, grid.dilation});
}

// Returns the offset in the padded tensor of the first element of every window, [windows].
HTensor window_starts(const WindowGrid& grid, const Strides& padded) {
  HTensor at = full(DType::I64, grid.places, 0);
  for (uint32_t i = 0; i < grid.x.rank(); ++i)
    at = at + iota(DType::I64, grid.places, i) * static_cast<double>(grid.strides[i] * padded[i]);
  return reshape(at, {grid.places.count()});
}

// Returns the offset of every element of a window from its first, [elements].
HTensor tap_offsets(const WindowGrid& grid, const Strides& padded) {
  const Shape window(grid.window);
  HTensor at = full(DType::I64, window, 0);
  for (uint32_t i = 0; i < window.rank(); ++i)
    at = at + iota(DType::I64, window, i) * static_cast<double>(grid.dilation[i] * padded[i]);
  return reshape(at, {window.count()});
}

// Distributes the gradient equally over the ties of each window, as in reduce_max, excluding padding. Materialises the
// windows, as `patches` does.
HTensor gradient_of_extreme(const WindowGrid& grid, const HTensor& x, const HTensor& y, const HTensor& dy) {
  Ints sizes, ends;
  for (uint32_t i = 0; i < grid.x.rank(); ++i) {
    sizes.push_back(grid.padded(i));
    ends.push_back(grid.low[i] + grid.x[i]);
  }
  const Shape padded(sizes);
  const int64_t windows = grid.places.count(),
                taps = checked_type(Op::reduce_window, DType::I64, Shape(grid.window)).shape.count();
  const Strides strides = row_major(padded);
  const HTensor places =
      reshape(window_starts(grid, strides), {windows, 1}) + reshape(tap_offsets(grid, strides), {1, taps});
  const auto in_windows = [&](const HTensor& from) {
    return gather(reshape(pad(from, grid.low, grid.high, 0), {padded.count()}), places);
  };
  const auto per_window = [&](const HTensor& of) { return broadcast(reshape(of, {windows, 1}), {windows, taps}); };
  HTensor hits = cast(equal(in_windows(x), per_window(y)), x.dtype());
  if (padded != grid.x) hits = hits * in_windows(full(x.dtype(), grid.x, 1));
  // A window that contains only padding has no hits.
  const HTensor ties = maximum(reduce_sum(hits, {1}, true), 1);
  const HTensor shares = hits * (reshape(dy, {windows, 1}) / ties);
  const HTensor sums = scatter_add(full(x.dtype(), {padded.count()}, 0), reshape(places, {windows * taps}),
                                   reshape(shares, {windows * taps}));
  return slice(reshape(sums, padded), grid.low, ends);
}

std::vector<HTensor> gradient_window(const AttributeMap& a, Tensors in, Tensors out, Tensors dy) {
  const TensorType type = type_of(in[0]);
  const WindowGrid grid(std::span(&type, 1), a, type.shape);
  if (a.text("reduction") == "sum") return {gradient_of_sum(grid, dy[0])};
  AttributeMap windows;
  for (const auto& [name, value] : a.entries())
    if (name != "reduction") windows.set(name, value);
  return apply("reduce_window_grad", windows, {in[0], out[0], dy[0]});
}

}  // namespace

HTensor share_among_extremes(const AttributeMap& attributes, const HTensor& x, const HTensor& y, const HTensor& dy) {
  const TensorType type = type_of(x);
  const WindowGrid grid(std::span(&type, 1), attributes, type.shape);
  if (y.shape() != grid.places || dy.shape() != grid.places)
    throw Error(ErrorKind::Shape, "reduce_window_grad: y is " + type_of(y).str() + " and dy " + type_of(dy).str() +
                                      "; windows of x " + type.str() + " have the shape " + grid.places.str());
  return gradient_of_extreme(grid, x, y, dy);
}

OpRow window_row(Op op) { return {op, {}, {}, infer_window, evaluate_window, gradient_window}; }

}  // namespace harmonics::engine
