#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// Returns the type in which a weight is multiplied if x has another type.
DType type_of_products(const HTensor& weight) { return is_stored(weight.dtype()) ? DType::F32 : weight.dtype(); }

// Returns the operand of the product: x, or x * scale for integer x.
HTensor scaled(const char* name, const AttributeMap& a, const HTensor& x, const HTensor& like) {
  if (!a.has("scale")) return x;
  expect(is_integer(x.dtype()), name, "scale is for whole numbers, not for " + text_of(x), ErrorKind::Type);
  return cast(x, type_of_products(like)) * a.number("scale");
}

bool is_narrow(DType dtype) { return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16; }

// How a call multiplies: operands are converted to `wide` and summed in it, and the result has type `out`. Nothing is
// converted if both operands and the result have the same type.
struct Conversion {
  bool converts = false;
  DType wide = DType::F32, out = DType::F32;
  std::string activation_type;  // type to which rows of x are quantised first; "" for none

  Conversion(const AttributeMap& a, const HTensor& operand, const HTensor& matrix) {
    const DType x = operand.dtype(), weight = matrix.dtype();
    const std::string sums = a.text("accumulate", ""), result = a.text("out_dtype", "");
    activation_type = a.text("activation_type", "");
    out = result.empty() ? x : dtype_named(result);
    if (!is_float(x) || (!is_float(weight) && !is_stored(weight))) {
      expect(sums.empty() && result.empty() && activation_type.empty(), "linear",
             "out_dtype, accumulate and activation_type are for floats, not for x " + text_of(operand) +
                 " and weight " + text_of(matrix),
             ErrorKind::Type);
      return;
    }
    const bool doubles = x == DType::F64 || weight == DType::F64;
    expect(sums != "f32" || !doubles, "linear", "f64 is not summed in f32; leave accumulate out or cast it first",
           ErrorKind::Type);
    wide = doubles || sums == "f64" ? DType::F64 : DType::F32;
    converts = x != weight || x != out || (sums == "f64" && x != DType::F64) || !activation_type.empty();
    if (activation_type.empty()) return;
    const int64_t block = element_type(dtype_named(activation_type)).block;
    expect(operand.shape().back() % block == 0, "linear",
           "activation_type " + activation_type + " has blocks of " + std::to_string(block) +
               ", and the last axis of x " + text_of(operand) + " is not a multiple of that");
  }

  HTensor multiplied(const HTensor& x) const {
    return cast(activation_type.empty() ? x : cast(x, dtype_named(activation_type)), wide);
  }
};

Values linear(const AttributeMap& a, Inputs in) {
  const HTensor &weight = in[1], x = scaled("linear", a, in[0], weight);
  const uint32_t from = a.flag("transposed") ? 0 : 1;  // input axis of the weight
  expect(x.rank() >= 1 && weight.rank() == 2 && x.shape().back() == weight.shape()[from], "linear",
         "x " + text_of(x) + " and weight " + text_of(weight) + " do not fit: x is [..., in], the weight " +
             (from ? "[out, in]" : "[in, out]"));
  const Conversion c(a, x, weight);
  HTensor y = c.converts ? dot(c.multiplied(x), cast(weight, c.wide), last_axis(x), {from})
                         : dot(x, weight, last_axis(x), {from});
  if (in.size() == 3) {
    expect(in[2].shape() == Shape{weight.shape()[1 - from]}, "linear",
           "bias " + text_of(in[2]) + " does not fit the weight " + text_of(weight) + ": it needs its axis of outputs");
    y = y + (c.converts && (is_narrow(in[2].dtype()) || c.wide == DType::F64) ? cast(in[2], c.wide) : in[2]);
  }
  y = activate(a, y);
  return {c.converts ? cast(y, c.out) : y};
}

Values linear_gradient(const AttributeMap& a, Inputs in, Inputs out, Inputs gradients) {
  const HTensor &weight = in[1], x = scaled("linear", a, in[0], weight);
  const bool transposed = a.flag("transposed");
  const HTensor dy = before_activation(a, out[0], gradients[0], [&] {
    std::vector<HTensor> numbers{in.begin(), in.end()};
    numbers[0] = x;
    AttributeMap before;
    for (const char* name : {"transposed", "out_dtype", "accumulate", "activation_type"})
      if (const AttributeValue* value = a.find(name)) before.set(name, *value);
    return one("linear", before, numbers);
  });
  const std::vector<int64_t> leading = leading_axes(x);
  const Conversion c(a, x, weight);
  if (c.converts) {  // the gradient of quantising x is the identity
    const HTensor dz = cast(dy, c.wide);
    Values result{HTensor(), HTensor()};
    if (!a.has("scale")) {
      // Devices may decode the weight in the product, in either direction.
      const bool decodes = weight.dtype() != DType::F32 && c.wide == DType::F32;
      const HTensor dx = decodes ? one("linear", AttributeMap().set("transposed", !transposed), {dz, weight})
                                 : dot(dz, cast(weight, c.wide), last_axis(dy), {transposed});
      result[0] = as_type_of(dx, in[0]);
    }
    if (!is_stored(weight.dtype())) {
      const HTensor multiplied = c.multiplied(x);
      result[1] = as_type_of(transposed ? dot(multiplied, dz, leading, leading) : dot(dz, multiplied, leading, leading),
                             weight);
    }
    if (in.size() == 3) result.push_back(as_type_of(leading.empty() ? dz : reduce_sum(dz, leading), in[2]));
    return result;
  }
  Values result{a.has("scale") ? HTensor() : dot(dy, weight, last_axis(dy), {transposed}),
                transposed ? dot(x, dy, leading, leading) : dot(dy, x, leading, leading)};
  if (in.size() == 3) result.push_back(leading.empty() ? dy : reduce_sum(dy, leading));
  return result;
}

// Returns the sum over all leading axes of outer products of rows of a and b: the gradient of the weight of an affine
// map.
HTensor summed_outer(const HTensor& a, const HTensor& b) { return dot(a, b, leading_axes(a), leading_axes(b)); }

// Uses select, so that a dropped sum also drops its infinities and NaN.
Values dot_add(const AttributeMap& attributes, Inputs in) {
  AttributeMap axes;
  for (const char* name : {"lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch"})
    axes.set(name, attributes.integers(name));
  const HTensor product = one("dot", axes, {in[1], in[2]});
  expect(in[0].shape() == product.shape(), "dot_add",
         "the sum " + text_of(in[0]) + " does not fit the product " + text_of(product));
  return {(in.size() == 4 ? select(in[3], in[0], zeros_like(in[0])) : in[0]) + product};
}

// A product and the sum of one of its operands, which the kernel reads once. Used for the gradients of a weight and its
// bias.
Values dot_sum(const AttributeMap& attributes, Inputs in) {
  const int64_t which = attributes.integer("sum", 0);
  AttributeMap axes;
  for (const char* name : {"lhs_contract", "rhs_contract"}) axes.set(name, attributes.integers(name));
  for (const char* name : {"lhs_batch", "rhs_batch"}) axes.set(name, std::vector<int64_t>{});
  return {
      one("dot", axes, {in[0], in[1]}),
      reduce_sum(in[static_cast<size_t>(which)], attributes.integers(which == 0 ? "lhs_contract" : "rhs_contract"))};
}

Values sgd_outer(const AttributeMap& attributes, Inputs in) {
  const HTensor &w = in[0], a = scaled("sgd_outer", attributes, in[1], w), &b = in[2];
  expect(w.rank() == 2 && a.rank() >= 1 && a.rank() == b.rank() && a.shape().back() == w.shape()[0] &&
             b.shape().back() == w.shape()[1],
         "sgd_outer",
         "w " + text_of(w) + ", a " + text_of(a) + " and b " + text_of(b) +
             " do not fit: w is [m, n], a [..., m] and b [..., n]");
  Values result{one("sgd", {}, {w, summed_outer(a, b), in[3]})};
  // "slope": the name before contract 1.5
  append_input_gradient(attributes.has("slope") ? "slope" : "input_gradient", attributes, w, a, b, result);
  return result;
}

}  // namespace

void append_input_gradient(const char* attribute, const AttributeMap& attributes, const HTensor& w, const HTensor& a,
                           const HTensor& b, Values& results) {
  const std::string mode = attributes.text(attribute, "");
  if (mode.empty()) return;
  const HTensor da = dot(b, w, last_axis(b), {1});
  results.push_back(mode == "all" ? da : select(less_equal(a, zeros_like(a)), zeros_like(a), da));
}

std::vector<Functional> linears() {
  return {
      {"linear",
       "affine map of the last axis",
       "x [..., in], weight [out, in], bias [out]? {activation = \"\" in relu|tanh|logistic|gelu, transposed = false "
       "(the weight is [in, out]), scale: float? (factor of x, which must have an integer type), batch_invariant = "
       "false "
       "since 1.5 (the result of a row has the same bits for any number of rows), out_dtype = \"\" in f32|f16|bf16|f64 "
       "since "
       "1.5 (element type of y; if empty, that of x), accumulate = \"\" in f32|f64 since 1.5 (element type of sums; if "
       "empty, f64 for f64 operands, else f32), activation_type = \"\" in q8_0 since 1.5 (type to which rows of x are "
       "quantised before the product; the gradient is computed from x itself)} -> y [..., out]; x and the weight may "
       "have different float types, and the weight may have a stored type (q8_0 ...)",
       linear,
       linear_gradient,
       {.transposable = 1, .scaled = 0, .free_types = 5, .stored = 1, .part = BlockPart::map}},
      {"dot_add",
       "adds a product of tensors to a sum, in place where possible",
       "sum [...], a, b, keep []? {lhs_contract: ints, rhs_contract: ints, lhs_batch: ints, rhs_batch: ints} -> y "
       "[...]; y is sum + dot(a, b), or dot(a, b) if keep is false",
       dot_add,
       nullptr,
       {.part = BlockPart::product}},
      {"dot_sum",
       "a product of tensors, and the sum of one operand over the contracted axes",
       "a, b {lhs_contract: ints, rhs_contract: ints, lhs_batch: ints? (empty), rhs_batch: ints? (empty), sum "
       "= 0 in 0..1} -> product [...], total [...]; product is dot(a, b); total is a summed over lhs_contract if sum "
       "is 0, b summed over rhs_contract if sum is 1",
       dot_sum,
       nullptr,
       {.part = BlockPart::product}},
      {"sgd_outer",
       "one step of gradient descent on an affine map's weight, without storing its gradient",
       "w [m, n], a [..., m], b [..., n], lr [] {input_gradient = \"\" in all|active since 1.5 (all: da is b w^T with "
       "the old w; active: the same, but 0 where a is not positive), slope = \"\" in all|active (name of "
       "input_gradient before contract 1.5), scale: float? (factor of a, which must have an integer type)} -> w [m, "
       "n], da [..., m]?; w - lr sum(a b^T)",
       sgd_outer,
       nullptr,
       {.scaled = 1}}};
}

}  // namespace harmonics::engine::reference
