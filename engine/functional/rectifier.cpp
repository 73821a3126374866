// Piecewise activations, and mish. Derivatives at the kinks follow PyTorch.
#include <fmt/core.h>

#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

// Klambauer et al. 2017: preserves zero mean and unit variance.
constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;

HTensor positive(const HTensor& x) { return less(0.0, x); }
HTensor inside(const HTensor& x, double low, double high) { return logical_and(less(low, x), less(x, high)); }
HTensor clamp(const HTensor& x, double low, double high) { return minimum(maximum(x, low), high); }

// Returns the slope of prelu with size 1 in all other axes. A single slope applies to all elements.
HTensor slope_along(const AttributeMap& a, const HTensor& x, const HTensor& slope) {
  const int64_t axis = a.integer("axis", 1), rank = x.rank();
  const bool single = slope.rank() == 1 && slope.size() == 1;
  const bool fits =
      slope.rank() == 1 && axis >= 0 && axis < rank && x.shape()[static_cast<uint32_t>(axis)] == slope.size();
  expect(single || fits, "prelu",
         "slope " + text_of(slope) + " does not fit axis " + std::to_string(axis) + " of x " + text_of(x) +
             ": give one slope, or one per index of the axis");
  return single ? reshape(slope, Shape(std::vector<int64_t>(x.rank(), 1)))
                : along(slope, x.rank(), static_cast<uint32_t>(axis));
}
Values prelu(const AttributeMap& a, Inputs in) {
  return {select(positive(in[0]), in[0], in[0] * slope_along(a, in[0], in[1]))};
}
Values prelu_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs dy) {
  const HTensor &x = in[0], up = positive(x);
  std::vector<int64_t> others;
  for (int64_t i = 0; i < static_cast<int64_t>(x.rank()); ++i)
    if (in[1].size() == 1 || i != a.integer("axis", 1)) others.push_back(i);
  const HTensor each = wide(select(up, zeros_like(x), x * dy[0]));
  const HTensor sum = others.empty() ? each : reduce_sum(each, others);
  return {select(up, dy[0], dy[0] * slope_along(a, x, in[1])), as_type_of(reshape(sum, in[1].shape()), in[1])};
}

Values selu(const AttributeMap&, Inputs in) {
  const HTensor below = kSeluScale * kSeluAlpha * expm1(minimum(in[0], 0.0));
  return {select(positive(in[0]), kSeluScale * in[0], below)};
}
Values selu_gradient(const AttributeMap&, Inputs in, Inputs, Inputs dy) {
  const HTensor below = kSeluScale * kSeluAlpha * exp(minimum(in[0], 0.0));
  return {dy[0] * select(positive(in[0]), full(in[0].dtype(), in[0].shape(), kSeluScale), below)};
}

Values celu(const AttributeMap& a, Inputs in) {
  const double alpha = a.number("alpha", 1.0);
  return {select(positive(in[0]), in[0], alpha * expm1(minimum(in[0], 0.0) * (1 / alpha)))};
}
Values celu_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs dy) {
  const HTensor below = exp(minimum(in[0], 0.0) * (1 / a.number("alpha", 1.0)));
  return {select(positive(in[0]), dy[0], dy[0] * below)};
}

Values hardtanh(const AttributeMap& a, Inputs in) {
  const double low = a.number("low", -1), high = a.number("high", 1);
  expect(low < high, "hardtanh", fmt::format("low is {:g} and high {:g}; low must be below high", low, high),
         ErrorKind::Type);
  return {clamp(in[0], low, high)};
}
Values hardtanh_gradient(const AttributeMap& a, Inputs in, Inputs, Inputs dy) {
  return {select(inside(in[0], a.number("low", -1), a.number("high", 1)), dy[0], zeros_like(dy[0]))};
}

Values hardsigmoid(const AttributeMap&, Inputs in) { return {clamp(in[0] + 3.0, 0, 6) * (1.0 / 6)}; }
Values hardsigmoid_gradient(const AttributeMap&, Inputs in, Inputs, Inputs dy) {
  return {select(inside(in[0], -3, 3), dy[0] * (1.0 / 6), zeros_like(dy[0]))};
}

Values hardswish(const AttributeMap&, Inputs in) { return {in[0] * (clamp(in[0] + 3.0, 0, 6) * (1.0 / 6))}; }
Values hardswish_gradient(const AttributeMap&, Inputs in, Inputs, Inputs dy) {
  const HTensor& x = in[0];
  const HTensor middle = dy[0] * (x * (1.0 / 3) + 0.5);
  return {select(less_equal(x, -3.0), zeros_like(x), select(less(x, 3.0), middle, dy[0]))};
}

HTensor softplus_of(const HTensor& x) { return maximum(x, 0.0) + log1p(exp(-abs(x))); }
Values mish(const AttributeMap&, Inputs in) { return {in[0] * tanh(softplus_of(in[0]))}; }
Values mish_gradient(const AttributeMap&, Inputs in, Inputs, Inputs dy) {
  const HTensor& x = in[0];
  const HTensor t = tanh(softplus_of(x));
  return {dy[0] * (t + x * logistic(x) * (1.0 - square(t)))};
}

}  // namespace

std::vector<Functional> rectifiers() {
  return {
      {"prelu", "x where positive, a learned fraction of it elsewhere",
       "x [...], slope [1] or [size of axis] {axis = 1} -> y [...]", prelu, prelu_gradient},
      {"selu", "elu, scaled to preserve mean 0 and variance 1", "x [...] -> y [...]", selu, selu_gradient},
      {"celu", "x where positive, alpha (exp(x / alpha) - 1) elsewhere", "x [...] {alpha = 1.0 in 0<..} -> y [...]",
       celu, celu_gradient},
      {"hardtanh", "x clamped to [low, high]", "x [...] {low = -1.0, high = 1.0} -> y [...]", hardtanh,
       hardtanh_gradient},
      {"hardsigmoid", "x / 6 + 1/2, clamped to [0, 1]", "x [...] -> y [...]", hardsigmoid, hardsigmoid_gradient},
      {"hardswish", "x times hardsigmoid(x)", "x [...] -> y [...]", hardswish, hardswish_gradient},
      {"mish", "x times tanh(softplus(x))", "x [...] -> y [...]", mish, mish_gradient},
  };
}

}  // namespace harmonics::engine::reference
