// Contractions: dot for tensor products; patches and unpatches, which express convolutions as products.
#include <algorithm>
#include <cstring>
#include <memory>

#include <harmonics/ops.hpp>

#include "engine/program/ops/accumulator.hpp"
#include "engine/program/ops/fill.hpp"
#include "engine/program/ops/list_check.hpp"
#include "engine/program/ops/strided_copy.hpp"

namespace harmonics::engine {

namespace {

using Types = std::span<const TensorType>;
using Inputs = std::span<const ConstView>;
using Outputs = std::span<const View>;
using Tensors = std::span<const HTensor>;
using Axes = std::vector<int64_t>;

// ---- dot

// Axes of an operand by role, each list in the order of the product.
struct DotAxes {
  const Axes &batch, &contract;
  Axes free;
  DotAxes(const AttributeMap& a, const std::string& side, uint32_t rank)
      : batch(a.integers(side + "_batch")), contract(a.integers(side + "_contract")) {
    for (int64_t i = 0; i < rank; ++i) {
      if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
          std::find(contract.begin(), contract.end(), i) == contract.end())
        free.push_back(i);
    }
  }
};

int64_t size_of(const Shape& shape, const Axes& axes) {
  int64_t n = 1;
  for (const int64_t axis : axes) n *= shape[static_cast<uint32_t>(axis)];
  return n;
}

void expect_side(Types in, const AttributeMap& a, size_t which, const std::string& side) {
  Axes all = a.integers(side + "_batch");
  const Axes& contract = a.integers(side + "_contract");
  all.insert(all.end(), contract.begin(), contract.end());
  expect_axes(Op::dot, in, all, side + "_batch and " + side + "_contract", which);
}

void expect_pairs(Types in, const AttributeMap& a, const std::string& what) {
  const Axes &left = a.integers("lhs_" + what), &right = a.integers("rhs_" + what);
  if (left.size() != right.size())
    misfit(Op::dot, ErrorKind::Shape, in,
           "lhs_" + what + " = " + list_text(left) + " and rhs_" + what + " = " + list_text(right) + " must pair up");
  for (size_t i = 0; i < left.size(); ++i) {
    const int64_t l = in[0].shape[static_cast<uint32_t>(left[i])], r = in[1].shape[static_cast<uint32_t>(right[i])];
    if (l != r)
      misfit(Op::dot, ErrorKind::Shape, in,
             what + " axis " + std::to_string(left[i]) + " of the left has size " + std::to_string(l) + ", axis " +
                 std::to_string(right[i]) + " of the right " + std::to_string(r) + "; they must be equal");
  }
}

// Element types of a product. If `converted`, operands and sums are `wide`, and the result is converted to `out`.
struct DotTypes {
  bool converted = false;
  DType wide, out;

  DotTypes(const AttributeMap& a, Types in) : wide(in[0].dtype), out(in[0].dtype) {
    const std::string sums = a.text("accumulate", ""), result = a.text("out_dtype", "");
    const DType left = in[0].dtype, right = in[1].dtype;
    if (!is_float(left) || !is_float(right)) {
      if (!sums.empty() || !result.empty())
        misfit(Op::dot, ErrorKind::Type, in, "out_dtype and accumulate are for operands of floating-point types");
      expect_same_dtype(Op::dot, in);
      return;
    }
    if (!sums.empty() && sums != "f32" && sums != "f64")
      misfit(Op::dot, ErrorKind::Type, in, "accumulate is f32 or f64, not '" + sums + "'");
    const bool doubles = left == DType::F64 || right == DType::F64;
    if (doubles && sums == "f32")
      misfit(Op::dot, ErrorKind::Type, in, "f64 is not summed in f32; leave accumulate out or cast it first");
    wide = doubles || sums == "f64" ? DType::F64 : DType::F32;
    out = result.empty() ? (left == right ? left : wide) : dtype_named(result);
    if (!is_float(out))
      misfit(Op::dot, ErrorKind::Type, in, "out_dtype is a floating-point type, not '" + result + "'");
    converted = left != right || left != out || (wide == DType::F64 && !doubles);
  }
};

std::vector<TensorType> infer_dot(const AttributeMap& a, Types in) {
  expect_operands(Op::dot, in, 2);
  expect_number(Op::dot, in, 0);
  const DotTypes types(a, in);
  expect_side(in, a, 0, "lhs");
  expect_side(in, a, 1, "rhs");
  expect_pairs(in, a, "batch");
  expect_pairs(in, a, "contract");
  const DotAxes left(a, "lhs", in[0].shape.rank()), right(a, "rhs", in[1].shape.rank());
  std::vector<int64_t> dims;
  for (const int64_t i : left.batch) dims.push_back(in[0].shape[static_cast<uint32_t>(i)]);
  for (const int64_t i : left.free) dims.push_back(in[0].shape[static_cast<uint32_t>(i)]);
  for (const int64_t i : right.free) dims.push_back(in[1].shape[static_cast<uint32_t>(i)]);
  return {checked_type(Op::dot, in, types.out, dims)};
}

// Returns a row-major copy with permuted axes.
template <typename T>
std::unique_ptr<T[]> packed(const ConstView& x, const Axes& first, const Axes& second, const Axes& third) {
  Axes order = first;
  order.insert(order.end(), second.begin(), second.end());
  order.insert(order.end(), third.begin(), third.end());
  std::unique_ptr<T[]> to(new T[static_cast<size_t>(x.type.shape.count())]);
  const Strides strides = row_major(x.type.shape);
  StridedCopy copy{{}, x.data, {}, 0, to.get(), {}, 0, sizeof(T)};
  for (size_t i = 0; i < order.size(); ++i) {
    copy.shape.push_back(x.type.shape[static_cast<uint32_t>(order[i])]);
    copy.from_strides[i] = strides[static_cast<size_t>(order[i])];
  }
  copy.to_strides = row_major(copy.shape);
  copy.run();
  return to;
}

// Multiplies [m, k] by [k, n], summing over k in order.
template <typename T>
void multiply(const T* left, const T* right, T* out, int64_t m, int64_t k, int64_t n) {
  std::vector<Accumulator<T>> sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    std::fill(sums.begin(), sums.end(), Accumulator<T>(0));
    for (int64_t j = 0; j < k; ++j) {
      const auto factor = static_cast<Accumulator<T>>(left[i * k + j]);
      const T* row = right + j * n;
      for (int64_t c = 0; c < n; ++c) sums[static_cast<size_t>(c)] += factor * static_cast<Accumulator<T>>(row[c]);
    }
    std::transform(sums.begin(), sums.end(), out + i * n, [](auto sum) { return static_cast<T>(sum); });
  }
}

void evaluate_plain_dot(const AttributeMap& a, Inputs in, Outputs out) {
  const Shape &left_shape = in[0].type.shape, &right_shape = in[1].type.shape;
  const DotAxes left(a, "lhs", left_shape.rank()), right(a, "rhs", right_shape.rank());
  const int64_t batch = size_of(left_shape, left.batch), k = size_of(left_shape, left.contract);
  const int64_t m = size_of(left_shape, left.free), n = size_of(right_shape, right.free);
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto l = packed<T>(in[0], left.batch, left.free, left.contract);
    const auto r = packed<T>(in[1], right.batch, right.contract, right.free);
    T* y = static_cast<T*>(out[0].data);
    for (int64_t b = 0; b < batch; ++b) multiply(l.get() + b * m * k, r.get() + b * k * n, y + b * m * n, m, k, n);
  });
}

void cast_view(const ConstView& from, const View& to) {
  op_row(Op::cast).evaluate(AttributeMap(), std::span(&from, 1), std::span(&to, 1));
}

void evaluate_dot(const AttributeMap& a, Inputs in, Outputs out) {
  const TensorType given[] = {in[0].type, in[1].type};
  const DotTypes types(a, given);
  if (!types.converted) return evaluate_plain_dot(a, in, out);
  std::vector<HTensor> wide;
  for (const TensorType& t : {given[0], given[1], out[0].type}) wide.emplace_back(types.wide, t.shape);
  std::vector<View> views;
  for (HTensor& t : wide) views.push_back({{types.wide, t.shape()}, t.mutable_bytes()});
  for (size_t i = 0; i < 2; ++i) cast_view(in[i], views[i]);
  const ConstView operands[] = {{views[0].type, views[0].data}, {views[1].type, views[1].data}};
  evaluate_plain_dot(a, operands, std::span(&views[2], 1));
  cast_view({views[2].type, views[2].data}, out[0]);
}

Axes counting(size_t first, size_t count) {
  Axes axes(count);
  for (size_t i = 0; i < count; ++i) axes[i] = static_cast<int64_t>(first + i);
  return axes;
}

// Returns the gradient of one operand (`own_axes`): dy contracted with the other operand over the free axes of the
// other. The product has the batch axes, own's free axes, then own's contracted axes in the other's order; a transpose
// restores own's order. `other_free_at`: index of the other's first free axis in dy. `types`: attributes that give it
// own's element type; empty if all types are equal.
HTensor operand_gradient(const HTensor& dy, const HTensor& other, const DotAxes& own_axes, const DotAxes& other_axes,
                         size_t other_free_at, Attributes types) {
  const size_t batch = own_axes.batch.size(), free = own_axes.free.size();
  const HTensor product = call1("dot", {dy, other},
                                types.set("lhs_contract", counting(other_free_at, other_axes.free.size()))
                                    .set("rhs_contract", other_axes.free)
                                    .set("lhs_batch", counting(0, batch))
                                    .set("rhs_batch", other_axes.batch));
  Axes permutation(batch + free + own_axes.contract.size());
  for (size_t i = 0; i < batch; ++i) permutation[static_cast<size_t>(own_axes.batch[i])] = static_cast<int64_t>(i);
  for (size_t i = 0; i < free; ++i)
    permutation[static_cast<size_t>(own_axes.free[i])] = static_cast<int64_t>(batch + i);
  for (size_t i = 0; i < own_axes.contract.size(); ++i) {
    const auto rank = std::count_if(other_axes.contract.begin(), other_axes.contract.end(),
                                    [&](int64_t axis) { return axis < other_axes.contract[i]; });
    permutation[static_cast<size_t>(own_axes.contract[i])] = static_cast<int64_t>(batch + free) + rank;
  }
  return permutation == counting(0, permutation.size()) ? product : transpose(product, permutation);
}

std::vector<HTensor> gradient_dot(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  const DotAxes left(a, "lhs", in[0].rank()), right(a, "rhs", in[1].rank());
  const size_t batch = left.batch.size();
  const TensorType given[] = {type_of(in[0]), type_of(in[1])};
  const DotTypes types(a, given);
  const auto of = [&](const HTensor& own) {
    Attributes attributes;
    if (!types.converted) return attributes;
    attributes.set("out_dtype", std::string(dtype_name(own.dtype())));
    if (types.wide == DType::F64) attributes.set("accumulate", std::string("f64"));
    return attributes;
  };
  // Sums in f32 have gradients in f32, even if the result is f64.
  const HTensor d =
      types.converted && types.wide == DType::F32 && dy[0].dtype() == DType::F64 ? cast(dy[0], DType::F32) : dy[0];
  return {operand_gradient(d, in[1], left, right, batch + left.free.size(), of(in[0])),
          operand_gradient(d, in[0], right, left, batch, of(in[1]))};
}

// ---- patches, unpatches

// Windows sliding over images [N, C, spatial...].
struct Windows {
  const Axes &kernel, &strides, &low, &high, &dilation;
  Shape image, places;  // spatial sizes of the image and of the grid of windows
  int64_t images, channels;
  int64_t taps = 1;  // elements of one window

  Windows(Op op, Types in, const AttributeMap& a, const Shape& shape)
      : kernel(list(op, in, a, "kernel", shape, 1)),
        strides(list(op, in, a, "strides", shape, 1)),
        low(list(op, in, a, "padding_low", shape, 0)),
        high(list(op, in, a, "padding_high", shape, 0)),
        dilation(list(op, in, a, "dilation", shape, 1)),
        image(shape.from(2)),
        images(shape[0]),
        channels(shape[1]) {
    for (uint32_t i = 0; i < image.rank(); ++i) {
      int64_t padded = 0, reach = 0;
      const bool overflow =
          __builtin_add_overflow(image[i], low[i], &padded) || __builtin_add_overflow(padded, high[i], &padded) ||
          __builtin_mul_overflow(kernel[i] - 1, dilation[i], &reach) || __builtin_mul_overflow(taps, kernel[i], &taps);
      if (overflow || reach >= padded)
        misfit(op, ErrorKind::Shape, in,
               "along spatial axis " + std::to_string(i) + " a window of " + std::to_string(kernel[i]) +
                   " with dilation " + std::to_string(dilation[i]) + " is larger than the image of " +
                   std::to_string(image[i]) + " padded by " + std::to_string(low[i]) + " and " +
                   std::to_string(high[i]));
      places.push_back((padded - reach - 1) / strides[i] + 1);
    }
  }

  // Returns the type [N, C * taps, places...].
  TensorType patches_type(Op op, Types in, DType dtype) const {
    int64_t rows = 0;
    if (__builtin_mul_overflow(channels, taps, &rows))
      misfit(op, ErrorKind::Shape, in, "the size of the windows overflows");
    Axes dims{images, rows};
    dims.insert(dims.end(), places.begin(), places.end());
    return checked_type(op, in, dtype, dims);
  }

  // Calls visit(patch element, image element or -1 for padding) in patch order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    const int64_t plane = image.count(), windows = places.count();
    int64_t at = 0;
    for (int64_t p = 0; p < images * channels; ++p) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        for (int64_t w = 0; w < windows; ++w, ++at) {
          const int64_t inside = element(tap, w);
          visit(at, inside < 0 ? inside : p * plane + inside);
        }
      }
    }
  }

 private:
  static const Axes& list(Op op, Types in, const AttributeMap& a, const char* name, const Shape& shape, int64_t least) {
    return expect_list(op, in, a, name, shape.rank() - 2, least);
  }

  // Returns the index in the plane of a window's tap, or -1 for padding.
  int64_t element(int64_t tap, int64_t window) const {
    int64_t offset = 0, step = 1;
    for (uint32_t i = image.rank(); i-- > 0;) {
      const int64_t at = window % places[i] * strides[i] + tap % kernel[i] * dilation[i] - low[i];
      if (at < 0 || at >= image[i]) return -1;
      offset += at * step;
      step *= image[i];
      window /= places[i];
      tap /= kernel[i];
    }
    return offset;
  }
};

void expect_image(Op op, Types in, const Shape& shape) {
  if (shape.rank() < 3)
    misfit(op, ErrorKind::Shape, in, "images have the shape [N, C, spatial...], not " + shape.str());
}

std::vector<TensorType> infer_patches(const AttributeMap& a, Types in) {
  expect_operands(Op::patches, in, 1);
  expect_number(Op::patches, in);
  expect_image(Op::patches, in, in[0].shape);
  a.number("fill");
  return {Windows(Op::patches, in, a, in[0].shape).patches_type(Op::patches, in, in[0].dtype)};
}

void evaluate_patches(const AttributeMap& a, Inputs in, Outputs out) {
  const Windows windows(Op::patches, {}, a, in[0].type.shape);
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T fill;
    fill_elements(in[0].type.dtype, &fill, 1, a.number("fill"));
    const T* x = static_cast<const T*>(in[0].data);
    T* y = static_cast<T*>(out[0].data);
    windows.for_each([&](int64_t patch, int64_t image) { y[patch] = image < 0 ? fill : x[image]; });
  });
}

Attributes window_attributes(const AttributeMap& a) {
  Attributes out;
  for (const char* name : {"kernel", "strides", "padding_low", "padding_high", "dilation"})
    out.set(name, a.integers(name));
  return out.set("fill", 0.0);
}

std::vector<HTensor> gradient_patches(const AttributeMap& a, Tensors in, Tensors, Tensors dy) {
  return {call1("unpatches", {dy[0]}, window_attributes(a).set("input_shape", in[0].shape()))};
}

std::vector<TensorType> infer_unpatches(const AttributeMap& a, Types in) {
  expect_operands(Op::unpatches, in, 1);
  expect_number(Op::unpatches, in);
  const TensorType image = checked_type(Op::unpatches, in, in[0].dtype, a.integers("input_shape"));
  expect_image(Op::unpatches, in, image.shape);
  const TensorType patches = Windows(Op::unpatches, in, a, image.shape).patches_type(Op::unpatches, in, in[0].dtype);
  if (patches != in[0])
    misfit(Op::unpatches, ErrorKind::Shape, in, "the patches of an image " + image.str() + " are " + patches.str());
  return {image};
}

void evaluate_unpatches(const AttributeMap& a, Inputs in, Outputs out) {
  const Windows windows(Op::unpatches, {}, a, out[0].type.shape);
  visit_dtype(in[0].type.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = static_cast<const T*>(in[0].data);
    std::vector<Accumulator<T>> sums(static_cast<size_t>(out[0].type.shape.count()));
    windows.for_each([&](int64_t patch, int64_t image) {
      if (image >= 0) sums[static_cast<size_t>(image)] += static_cast<Accumulator<T>>(x[patch]);
    });
    std::transform(sums.begin(), sums.end(), static_cast<T*>(out[0].data),
                   [](auto sum) { return static_cast<T>(sum); });
  });
}

std::vector<HTensor> gradient_unpatches(const AttributeMap& a, Tensors, Tensors, Tensors dy) {
  return {call1("patches", {dy[0]}, window_attributes(a))};
}

}  // namespace

OpRow linear_row(Op op) {
  switch (op) {
    case Op::dot:
      return {op, {}, {}, infer_dot, evaluate_dot, gradient_dot};
    case Op::patches:
      return {op, {}, {}, infer_patches, evaluate_patches, gradient_patches};
    case Op::unpatches:
      return {op, {}, {}, infer_unpatches, evaluate_unpatches, gradient_unpatches};
    default:
      throw Error(ErrorKind::Internal, "no linear operation");
  }
}

}  // namespace harmonics::engine
