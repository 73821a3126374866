#include <limits>

#include <harmonics/quantity.hpp>

#include "engine/functional/reference.hpp"
#include "engine/program/ops/window.hpp"

namespace harmonics::engine::reference {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

struct Pooling {
  Shape input;  // [N, C, ...]
  std::vector<int64_t> kernel;
  AttributeMap attributes;  // of `patches`

  Pooling(const char* name, const AttributeMap& a, const Shape& x, double fill)
      : input(x), kernel(a.integers("kernel")) {
    expect(x.rank() == kernel.size() + 2, name,
           "kernel has " + quantity(kernel.size(), "number") + ", but x is " + x.str() +
               "; x is [N, C, ...] with one kernel size for each further axis");
    attributes = window(name, a, kernel, fill);
    for (size_t i = 0; i < kernel.size(); ++i)
      expect(reach(i) > at("padding_low", i) && reach(i) > at("padding_high", i), name,
             "padding of axis " + std::to_string(i) +
                 " is as large as the window, so that a window could cover padding only");
  }
  int64_t at(const char* key, size_t i) const { return attributes.integers(key)[i]; }
  int64_t reach(size_t i) const { return (kernel[i] - 1) * at("dilation", i) + 1; }
  int64_t kernel_elements() const { return Shape(kernel).count(); }
  int64_t plane() const { return input.from(2).count(); }
  bool padded() const {
    for (size_t i = 0; i < kernel.size(); ++i)
      if (at("padding_low", i) || at("padding_high", i)) return true;
    return false;
  }
  // [N, C, kernel elements, out...]
  HTensor windows(const HTensor& x) const {
    const HTensor p = one("patches", attributes, {x});
    std::vector<int64_t> dims{x.shape()[0], x.shape()[1], kernel_elements()};
    for (int64_t d : p.shape().from(2)) dims.push_back(d);
    return reshape(p, Shape(dims));
  }
  // Returns a plane of ones, [1, 1, ...], to distinguish elements from padding.
  HTensor ones(DType dtype) const {
    Shape s = input;
    s[0] = s[1] = 1;
    return full(dtype, s, 1);
  }
  // Returns the offset of each element of a window from its first element, in the flat plane.
  HTensor kernel_offsets() const {
    std::vector<int64_t> offsets;
    for (int64_t k = 0; k < kernel_elements(); ++k) {
      int64_t rest = k, inner = 1, offset = 0;
      for (size_t i = kernel.size(); i-- > 0; rest /= kernel[i], inner *= input[static_cast<uint32_t>(i + 2)])
        offset += rest % kernel[i] * at("dilation", i) * inner;
      offsets.push_back(offset);
    }
    return HTensor::from<int64_t>({kernel_elements()}, offsets);
  }
  // Returns the flat index of the first element of each window, [N, C, out...]. It is outside the plane in padding.
  HTensor window_starts(const Shape& out) const {
    HTensor sum = full(DType::I64, out, 0);
    int64_t inner = 1;
    for (size_t i = kernel.size(); i-- > 0; inner *= input[static_cast<uint32_t>(i + 2)]) {
      const HTensor place = iota(DType::I64, out, static_cast<int64_t>(i) + 2);
      sum = sum + (place * static_cast<double>(at("strides", i)) - static_cast<double>(at("padding_low", i))) *
                      static_cast<double>(inner);
    }
    return sum;
  }
};

// Returns the first of equal maxima. Padding is never a maximum, not even over -inf.
Values max_pool(const AttributeMap& a, Inputs in) {
  const HTensor& x = in[0];
  expect(is_float(x.dtype()), "max_pool", "x is " + text_of(x) + "; it must be of a float type", ErrorKind::Type);
  const Pooling p("max_pool", a, x.shape(), kLowest);
  const HTensor windows = p.windows(x);
  const HTensor y = reduce_max(windows, {2});
  HTensor chosen = argmax(windows, 2);
  if (p.padded()) {
    Pooling mask = p;
    mask.attributes.set("fill", 0.0);
    const HTensor first_real = argmax(mask.windows(mask.ones(DType::F32)), 2);
    chosen = select(equal(y, kLowest), first_real, chosen);
  }
  const HTensor flat = p.window_starts(y.shape()) + gather(p.kernel_offsets(), chosen);
  return {y, cast(flat, DType::I32)};
}
Values max_pool_gradient(const AttributeMap&, Inputs in, Inputs out, Inputs gradients) {
  return {one("max_pool_grad", AttributeMap().set("input_shape", in[0].shape().vector()), {out[1], gradients[0]})};
}
Values reduce_window_grad(const AttributeMap& a, Inputs in) {
  return {as_type_of(share_among_extremes(a, wide(in[0]), wide(in[1]), wide(in[2])), in[0])};
}
Values max_pool_grad(const AttributeMap& a, Inputs in) {
  const HTensor &indices = in[0], &dy = in[1];
  const Shape shape = a.shape("input_shape");
  expect(indices.shape() == dy.shape() && dy.rank() == shape.rank() && dy.rank() >= 3 && dy.shape()[0] == shape[0] &&
             dy.shape()[1] == shape[1],
         "max_pool_grad",
         "indices " + text_of(indices) + ", dy " + text_of(dy) + " and input_shape " + shape.str() + " do not fit");
  const int64_t planes = shape[0] * shape[1], places = dy.shape().from(2).count(), plane = shape.from(2).count();
  const HTensor plane_start = iota(DType::I64, {planes, places}, 0) * static_cast<double>(plane);
  const HTensor flat = reshape(cast(indices, DType::I64), {planes, places}) + plane_start;
  const HTensor sum = scatter_add(full(dy.dtype(), {planes * plane}, 0), reshape(flat, {planes * places}),
                                  reshape(dy, {planes * places}));
  return {reshape(sum, shape)};
}

// Returns the number of elements by which each window is divided: a scalar, or [1, 1, 1, out...] if padding does not
// count.
HTensor divisor(const Pooling& p, const AttributeMap& a, DType dtype) {
  if (a.flag("count_include_pad") || !p.padded()) return full(dtype, {}, static_cast<double>(p.kernel_elements()));
  return reduce_sum(p.windows(p.ones(dtype)), {2}, true);
}
Values avg_pool(const AttributeMap& a, Inputs in) {
  const HTensor x = wide(in[0]);
  const Pooling p("avg_pool", a, x.shape(), 0);
  const HTensor mean = reduce_sum(p.windows(x), {2}, true) / divisor(p, a, x.dtype());
  std::vector<int64_t> dims = mean.shape().vector();
  dims.erase(dims.begin() + 2);
  return {as_type_of(reshape(mean, Shape(dims)), in[0])};
}
Values avg_pool_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs gradients) {
  AttributeMap attributes = a;
  return {one("avg_pool_grad", attributes.set("input_shape", in[0].shape().vector()), {gradients[0]})};
}
Values avg_pool_grad(const AttributeMap& a, Inputs in) {
  const HTensor dy = wide(in[0]);
  const Shape shape = a.shape("input_shape");
  const Pooling p("avg_pool_grad", a, shape, 0);
  expect(dy.rank() == shape.rank() && dy.shape()[0] == shape[0] && dy.shape()[1] == shape[1], "avg_pool_grad",
         "dy " + text_of(dy) + " and input_shape " + shape.str() + " do not fit");
  std::vector<int64_t> dims = dy.shape().vector();
  dims.insert(dims.begin() + 2, 1);
  const HTensor each = reshape(dy, Shape(dims)) / divisor(p, a, dy.dtype());
  dims[2] = p.kernel_elements();
  Shape columns = dy.shape();
  columns[1] = shape[1] * p.kernel_elements();
  AttributeMap fold = p.attributes;
  fold.set("input_shape", shape.vector());
  return {as_type_of(one("unpatches", fold, {reshape(broadcast(each, Shape(dims)), columns)}), in[0])};
}

}  // namespace

#define HM_POOL_WINDOW                                                                                              \
  "kernel: ints, strides: ints? in 1.., padding_low: ints? in 0.., padding_high: ints? in 0.., dilation: ints? in " \
  "1.."

std::vector<Functional> pools() {
  return {
      {"max_pool", "largest element of each window, and its flat index within the plane",
       "x [N, C, ...] {" HM_POOL_WINDOW "} -> y [N, C, ...], indices i32 [N, C, ...]", max_pool, max_pool_gradient},
      {"max_pool_grad",
       "gradient of max_pool",
       "indices i32 [N, C, ...], dy [N, C, ...] {input_shape: ints} -> dx [N, C, ...]",
       max_pool_grad,
       nullptr,
       {.places_of = "max_pool"}},
      {"avg_pool", "mean of each window; padding is counted only with count_include_pad",
       "x [N, C, ...] {" HM_POOL_WINDOW ", count_include_pad = false} -> y [N, C, ...]", avg_pool, avg_pool_gradient},
      {"avg_pool_grad", "gradient of avg_pool",
       "dy [N, C, ...] {" HM_POOL_WINDOW ", count_include_pad = false, input_shape: ints} -> dx [N, C, ...]",
       avg_pool_grad, nullptr},
      {"reduce_window_grad",
       "gradient of reduce_window with max or min, shared equally among the elements that equal the result",
       "x [...], y [...], dy like y {window: ints, strides: ints, padding_low: ints, padding_high: ints, dilation: "
       "ints} -> dx like x",
       reduce_window_grad, nullptr},
  };
}

}  // namespace harmonics::engine::reference
