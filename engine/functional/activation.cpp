#include "engine/functional/reference.hpp"

#include <cmath>

namespace harmonics::engine::reference {
namespace {

constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

bool tanh_gelu(const AttributeMap& a) { return a.text("approximate", "none") == "tanh"; }

Values relu(const AttributeMap&, Inputs in) { return {maximum(in[0], 0.0)}; }
// The derivative at 0 is 0.
Values relu_gradient(const AttributeMap&, Inputs, Inputs out, Inputs dy) {
  return {select(less_equal(out[0], 0.0), zeros_like(dy[0]), dy[0])};
}

Values leaky_relu(const AttributeMap& a, Inputs in) {
  return {select(less(0.0, in[0]), in[0], in[0] * a.number("slope", 0.01))};
}
Values leaky_relu_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs dy) {
  return {select(less(0.0, in[0]), dy[0], dy[0] * a.number("slope", 0.01))};
}

Values gelu(const AttributeMap& a, Inputs in) {
  const HTensor& x = in[0];
  if (!tanh_gelu(a)) return {0.5 * x * (1.0 + erf(x * M_SQRT1_2))};
  return {0.5 * x * (1.0 + tanh(kGeluScale * (x + kGeluCubic * (x * x * x))))};
}
HTensor gelu_derivative(const AttributeMap& a, const HTensor& x) {
  if (!tanh_gelu(a)) {
    const HTensor density = exp(-0.5 * square(x)) * (M_SQRT1_2 * M_2_SQRTPI / 2);
    return 0.5 * (1.0 + erf(x * M_SQRT1_2)) + x * density;
  }
  const HTensor t = tanh(kGeluScale * (x + kGeluCubic * (x * x * x)));
  const HTensor inner = kGeluScale * (1.0 + 3 * kGeluCubic * square(x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - square(t)) * inner;
}
Values gelu_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs dy) {
  return {one("gelu_grad", a, {in[0], dy[0]})};
}
Values gelu_grad(const AttributeMap& a, Inputs in) { return {in[1] * gelu_derivative(a, in[0])}; }

Values silu(const AttributeMap&, Inputs in) { return {in[0] * logistic(in[0])}; }
Values silu_gradient(const AttributeMap&, Inputs in, Inputs, Inputs dy) {
  const HTensor s = logistic(in[0]);
  return {dy[0] * (s * (1.0 + in[0] * (1.0 - s)))};
}

// exp sees only the negative half, so that neither it nor its gradient overflows.
Values elu(const AttributeMap& a, Inputs in) {
  return {select(less(0.0, in[0]), in[0], a.number("alpha", 1.0) * expm1(minimum(in[0], 0.0)))};
}
Values elu_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs dy) {
  return {select(less(0.0, in[0]), dy[0], dy[0] * (a.number("alpha", 1.0) * exp(minimum(in[0], 0.0))))};
}

Values softplus(const AttributeMap&, Inputs in) { return {maximum(in[0], 0.0) + log1p(exp(-abs(in[0])))}; }
Values softplus_gradient(const AttributeMap&, Inputs in, Inputs, Inputs dy) { return {dy[0] * logistic(in[0])}; }

void expect_last_axis(const char* name, const HTensor& x) {
  expect(x.rank() >= 1 && x.shape().back() > 0, name, "needs a last axis with elements, got " + text_of(x));
}

Values softmax(const AttributeMap&, Inputs in) {
  expect_last_axis("softmax", in[0]);
  const HTensor x = wide(in[0]);
  const HTensor e = exp(x - stop_gradient(reduce_max(x, last_axis(x), true)));
  return {as_type_of(e / reduce_sum(e, last_axis(x), true), in[0])};
}
Values softmax_gradient(const AttributeMap&, Inputs, Inputs out, Inputs dy) {
  return {one("softmax_grad", {}, {out[0], dy[0]})};
}
Values softmax_grad(const AttributeMap&, Inputs in) {
  const HTensor y = wide(in[0]), dy = wide(in[1]);
  return {as_type_of(y * (dy - reduce_sum(y * dy, last_axis(y), true)), in[0])};
}

Values log_softmax(const AttributeMap&, Inputs in) {
  expect_last_axis("log_softmax", in[0]);
  const HTensor x = wide(in[0]);
  const HTensor shifted = x - stop_gradient(reduce_max(x, last_axis(x), true));
  return {as_type_of(shifted - log(reduce_sum(exp(shifted), last_axis(x), true)), in[0])};
}
Values log_softmax_gradient(const AttributeMap&, Inputs, Inputs out, Inputs dy) {
  return {one("log_softmax_grad", {}, {out[0], dy[0]})};
}
Values log_softmax_grad(const AttributeMap&, Inputs in) {
  const HTensor y = wide(in[0]), dy = wide(in[1]);
  return {as_type_of(dy - exp(y) * reduce_sum(dy, last_axis(y), true), in[0])};
}

}  // namespace

HTensor activate(const AttributeMap& attributes, const HTensor& x) {
  const std::string activation = attributes.text("activation", "");
  if (activation.empty()) return x;
  return one(activation, {}, {x});
}

HTensor before_activation(const AttributeMap& attributes, const HTensor& y, const HTensor& dy,
                          const std::function<HTensor()>& before) {
  const std::string activation = attributes.text("activation", "");
  if (activation == "relu") return select(less_equal(y, 0.0), zeros_like(dy), dy);
  if (activation == "tanh") return dy * (1.0 - square(y));
  if (activation == "logistic") return dy * (y * (1.0 - y));
  if (activation == "gelu") return one("gelu_grad", {}, {before(), dy});
  return dy;
}

std::vector<Functional> activations() {
  const Traits activation{.elementwise = true, .part = BlockPart::activation},
      gradient_of_gelu{.elementwise = true, .gradient_of = "gelu"};
  return {
      {"relu", "max(x, 0)", "x [...] -> y [...]", relu, relu_gradient, activation},
      {"leaky_relu", "x where positive, a fraction of it elsewhere", "x [...] {slope = 0.01} -> y [...]", leaky_relu,
       leaky_relu_gradient, activation},
      {"gelu", "x times the cumulative distribution function of the normal distribution, exact or approximated by tanh",
       "x [...] {approximate = \"none\" in none|tanh} -> y [...]", gelu, gelu_gradient, activation},
      {"gelu_grad", "gradient of gelu", "x [...], dy [...] {approximate = \"none\" in none|tanh} -> dx [...]",
       gelu_grad, nullptr, gradient_of_gelu},
      {"silu", "x times its logistic function (swish)", "x [...] -> y [...]", silu, silu_gradient, activation},
      {"elu", "x where positive, alpha (exp(x) - 1) elsewhere", "x [...] {alpha = 1.0} -> y [...]", elu, elu_gradient,
       activation},
      {"softplus", "log(1 + exp(x)), a smooth relu", "x [...] -> y [...]", softplus, softplus_gradient, activation},
      {"softmax", "exp(x) divided by its sum over the last axis", "x [..., n] -> y [..., n]", softmax,
       softmax_gradient},
      {"softmax_grad", "gradient of softmax", "y [..., n], dy [..., n] -> dx [..., n]", softmax_grad, nullptr},
      {"log_softmax", "logarithm of softmax over the last axis", "x [..., n] -> y [..., n]", log_softmax,
       log_softmax_gradient},
      {"log_softmax_grad", "gradient of log_softmax", "y [..., n], dy [..., n] -> dx [..., n]", log_softmax_grad,
       nullptr},
  };
}

}  // namespace harmonics::engine::reference
