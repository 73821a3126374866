// Convolution as a matrix product: columns are patches of windows, and the weight is one matrix per group.
#include "engine/functional/reference.hpp"

#include <harmonics/quantity.hpp>

namespace harmonics::engine::reference {

namespace {
constexpr int64_t kMostOfWindow = int64_t{1} << 30;  // so that the product of two such numbers fits
}  // namespace

AttributeMap window(const char* name, const AttributeMap& attributes, const std::vector<int64_t>& kernel, double fill) {
  for (const int64_t size : kernel)
    expect(size <= kMostOfWindow, name,
           "kernel holds " + std::to_string(size) + "; the maximum is " + std::to_string(kMostOfWindow));
  AttributeMap result;
  const auto list = [&](const char* key, int64_t otherwise, int64_t least) {
    std::vector<int64_t> values =
        attributes.has(key) ? attributes.integers(key) : std::vector<int64_t>(kernel.size(), otherwise);
    expect(values.size() == kernel.size(), name,
           std::string(key) + " has " + quantity(values.size(), "number") + "; give one for each of the " +
               std::to_string(kernel.size()) + " spatial axes");
    for (int64_t v : values)
      expect(v >= least, name,
             std::string(key) + " holds " + std::to_string(v) + "; the minimum is " + std::to_string(least));
    for (const int64_t v : values)
      expect(v <= kMostOfWindow, name,
             std::string(key) + " holds " + std::to_string(v) + "; the maximum is " + std::to_string(kMostOfWindow));
    result.set(key, values);
  };
  list("strides", 1, 1);
  list("dilation", 1, 1);
  list("padding_low", 0, 0);
  list("padding_high", 0, 0);
  return result.set("kernel", kernel).set("fill", fill);
}

namespace {

// Sizes of a convolution, derived from the shapes of x (or dx) and the weight.
struct Geometry {
  int64_t samples, groups, outputs, outputs_per_group, rows;  // rows: channels per group times kernel elements
  AttributeMap patches;

  Geometry(const char* name, const AttributeMap& a, const Shape& x, const Shape& weight) {
    groups = a.integer("groups", 1);
    expect(x.rank() >= 3 && weight.rank() == x.rank(), name,
           "x " + x.str() + " and weight " + weight.str() +
               " do not fit: x is [N, C, ...], the weight [O, C/groups, ...]");
    expect(groups >= 1 && weight[0] % groups == 0 && x[1] == weight[1] * groups, name,
           "x " + x.str() + " with " + quantity(groups, "group") + " does not fit weight " + weight.str() +
               ": C must be the weight's second axis times groups, and groups must divide its first");
    samples = x[0];
    outputs = weight[0];
    outputs_per_group = outputs / groups;
    rows = weight.from(1).count();
    patches = window(name, a, weight.from(2).vector(), 0);
  }
  HTensor matrices(const HTensor& weight) const { return reshape(weight, {groups, outputs_per_group, rows}); }
  // [N, groups, rows, positions], from patches or their gradients.
  HTensor columns(const HTensor& p) const { return reshape(p, {samples, groups, rows, p.shape().from(2).count()}); }
  HTensor grouped(const HTensor& y) const {
    return reshape(y, {samples, groups, outputs_per_group, y.shape().from(2).count()});
  }
};

// Returns {1, 0, 2, ...}, which swaps the first two of `rank` axes.
std::vector<int64_t> swapped(int64_t rank) {
  std::vector<int64_t> p{1, 0};
  for (int64_t i = 2; i < rank; ++i) p.push_back(i);
  return p;
}

Values conv(const AttributeMap& a, Inputs in) {
  const HTensor &x = in[0], &weight = in[1];
  const Geometry g("conv", a, x.shape(), weight.shape());
  const HTensor patches = one("patches", g.patches, {x});
  Shape shape = patches.shape();  // [N, C * kernel, out...] -> [O, N, out...]
  shape[0] = g.outputs;
  shape[1] = g.samples;
  const HTensor product = dot(g.matrices(weight), g.columns(patches), {2}, {2}, {0}, {1});
  HTensor y = transpose(reshape(product, shape), swapped(shape.rank()));
  if (in.size() == 3) {
    expect(in[2].shape() == Shape{g.outputs}, "conv",
           "bias " + text_of(in[2]) + " does not fit the weight " + text_of(weight) + ": it needs its first axis");
    y = y + along(in[2], y.rank(), 1);
  }
  return {activate(a, y)};
}

AttributeMap geometry_attributes(const AttributeMap& a) {
  AttributeMap result;
  for (const char* key : {"strides", "dilation", "padding_low", "padding_high", "groups"})
    if (const AttributeValue* value = a.find(key)) result.set(key, *value);
  return result;
}

Values conv_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const HTensor &x = in[0], &weight = in[1];
  const AttributeMap plain = geometry_attributes(a);
  const HTensor dy = before_activation(a, out[0], gradients[0], [&] {
    return one("conv", plain, {in.begin(), in.end()});
  });
  AttributeMap for_input = plain, for_weight = plain;
  for_input.set("input_shape", x.shape().vector());
  for_weight.set("weight_shape", weight.shape().vector());
  Values result{one("conv_grad_input", for_input, {weight, dy}), one("conv_grad_weight", for_weight, {x, dy})};
  if (in.size() == 3) {
    std::vector<int64_t> axes{0};
    for (int64_t i = 2; i < static_cast<int64_t>(dy.rank()); ++i) axes.push_back(i);
    result.push_back(reduce_sum(dy, axes));
  }
  return result;
}

Values conv_grad_input(const AttributeMap& a, Inputs in) {
  const HTensor &weight = in[0], &dy = in[1];
  const Shape input_shape = a.shape("input_shape");
  const Geometry g("conv_grad_input", a, input_shape, weight.shape());
  // [groups, rows, N, positions] -> [N, C * kernel, out...]
  const HTensor product = dot(g.matrices(weight), g.grouped(dy), {1}, {2}, {0}, {1});
  Shape shape = dy.shape();
  shape[1] = g.groups * g.rows;
  const HTensor columns = reshape(transpose(product, {2, 0, 1, 3}), shape);
  AttributeMap fold = g.patches;
  fold.set("input_shape", input_shape.vector());
  return {one("unpatches", fold, {columns})};
}

Values conv_grad_weight(const AttributeMap& a, Inputs in) {
  const HTensor &x = in[0], &dy = in[1];
  const Shape weight_shape = a.shape("weight_shape");
  const Geometry g("conv_grad_weight", a, x.shape(), weight_shape);
  const HTensor columns = g.columns(one("patches", g.patches, {x}));
  return {reshape(dot(g.grouped(dy), columns, {0, 3}, {0, 3}, {1}, {1}), weight_shape)};
}

// Attributes of max pooling after a convolution, which devices can fuse while the result is in cache.
AttributeMap pool_attributes(const AttributeMap& a) {
  AttributeMap result;
  for (const char* key : {"kernel", "strides", "padding_low", "padding_high", "dilation"})
    if (const AttributeValue* value = a.find(std::string("pool_") + key)) result.set(key, *value);
  return result;
}

Values conv_max_pool(const AttributeMap& a, Inputs in) {
  AttributeMap window = geometry_attributes(a);
  window.set("activation", a.text("activation", ""));
  return apply("max_pool", pool_attributes(a), {one("conv", window, {in.begin(), in.end()})});
}

// Returns the gradient before pooling: dy at the indices, 0 elsewhere.
HTensor unpooled(const AttributeMap& a, const HTensor& x, const HTensor& weight, const HTensor& indices,
                 const HTensor& dy) {
  Shape places = one("conv", geometry_attributes(a), {x, weight}).shape();
  return one("max_pool_grad", AttributeMap().set("input_shape", places.vector()), {indices, dy});
}
Values conv_max_pool_grad_input(const AttributeMap& a, Inputs in) {
  AttributeMap back = geometry_attributes(a);
  const HTensor x = full(in[0].dtype(), a.shape("input_shape"), 0);
  return {one("conv_grad_input", back.set("input_shape", a.integers("input_shape")),
              {in[0], unpooled(a, x, in[0], in[1], in[2])})};
}
Values conv_max_pool_grad_weight(const AttributeMap& a, Inputs in) {
  AttributeMap back = geometry_attributes(a);
  const HTensor weight = full(in[0].dtype(), a.shape("weight_shape"), 0);
  return {one("conv_grad_weight", back.set("weight_shape", a.integers("weight_shape")),
              {in[0], unpooled(a, in[0], weight, in[1], in[2])})};
}

}  // namespace

#define HM_WINDOW "strides: ints? in 1.., padding_low: ints? in 0.., padding_high: ints? in 0.., dilation: ints? in 1.."
#define HM_ACTIVATION "activation = \"\" in relu|tanh|logistic|gelu"

std::vector<Functional> convolutions() {
  return {
      {"conv",
       "convolution (cross-correlation) over any number of spatial axes",
       "x [N, C, ...], weight [O, C/groups, ...], bias [O]? {" HM_WINDOW ", groups = 1 in 1.., " HM_ACTIVATION
       "} -> y [N, O, ...]",
       conv,
       conv_gradient,
       {.part = BlockPart::convolution}},
      {"conv_grad_input", "gradient of conv with respect to x",
       "weight [O, C/groups, ...], dy [N, O, ...] {" HM_WINDOW ", groups = 1 in 1.., input_shape: ints} -> dx [N, C, "
       "...]",
       conv_grad_input, nullptr},
      {"conv_grad_weight", "gradient of conv with respect to the weight",
       "x [N, C, ...], dy [N, O, ...] {" HM_WINDOW ", groups = 1 in 1.., weight_shape: ints} -> dweight [O, "
       "C/groups, ...]",
       conv_grad_weight, nullptr},
      {"conv_max_pool",
       "conv, then max_pool of its result, in one call",
       "x [N, C, ...], weight [O, C/groups, ...], bias [O]? {" HM_WINDOW ", groups = 1 in 1.., " HM_ACTIVATION
       ", pool_kernel: ints in 1.., pool_strides: ints? in 1.., pool_padding_low: ints? in 0.., pool_padding_high: "
       "ints? in 0.., pool_dilation: ints? in 1..} -> y [N, O, ...], indices i32 [N, O, ...]; attributes of max_pool "
       "have the prefix pool_",
       conv_max_pool,
       nullptr,
       {.joins = {"conv", "max_pool"}}},
      {"conv_max_pool_grad_input",
       "gradient of conv_max_pool with respect to x; dy is the gradient before the activation",
       "weight [O, C/groups, ...], indices i32 [N, O, ...], dy [N, O, ...] {" HM_WINDOW
       ", groups = 1 in 1.., input_shape: ints} -> dx [N, C, ...]",
       conv_max_pool_grad_input,
       nullptr,
       {.joins = {"max_pool_grad", "conv_grad_input"}}},
      {"conv_max_pool_grad_weight",
       "gradient of conv_max_pool with respect to the weight; dy is the gradient before the activation",
       "x [N, C, ...], indices i32 [N, O, ...], dy [N, O, ...] {" HM_WINDOW
       ", groups = 1 in 1.., weight_shape: ints} -> dweight [O, C/groups, ...]",
       conv_max_pool_grad_weight,
       nullptr,
       {.joins = {"max_pool_grad", "conv_grad_weight"}}},
  };
}

}  // namespace harmonics::engine::reference
