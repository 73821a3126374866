// One step of one parameter; formulas and their order follow PyTorch. `lr` is a scalar, the step number counts from 1.
#include <fmt/core.h>

#include "engine/functional/reference.hpp"

namespace harmonics::reference {
namespace {

void expect_alike(const char* name, Inputs in, size_t count) {
  for (size_t i = 1; i < count; ++i)
    expect(type_of(in[i]) == type_of(in[0]), name,
           "the parameter is " + text_of(in[0]) + ", but input " + std::to_string(i) + " is " + text_of(in[i]));
}
HTensor scalar_of(const char* name, const HTensor& value, const HTensor& like) {
  expect(value.rank() == 0, name, "the learning rate is one number, not " + text_of(value));
  return cast(value, like.dtype());
}

Values sgd(const AttributeMap& a, Inputs in) {
  expect_inputs("sgd", in, 3, 4);
  const bool has_momentum = in.size() == 4;
  expect_alike("sgd", in, in.size() - 1);
  const double momentum = a.number("momentum", 0), decay = a.number("weight_decay", 0);
  const HTensor &w = in[0], lr = scalar_of("sgd", in.back(), w);
  HTensor g = in[1];
  if (decay != 0) g = g + decay * w;
  if (!has_momentum) {
    expect(momentum == 0, "sgd", fmt::format("momentum {:g} needs the velocity as third input", momentum));
    return {w - lr * g};
  }
  const HTensor velocity = momentum * in[2] + g;
  const HTensor direction = a.flag("nesterov") ? g + momentum * velocity : velocity;
  return {w - lr * direction, velocity};
}

enum class Decay { in_gradient, decoupled };

Values adam_step(const char* name, const AttributeMap& a, Inputs in, Decay kind) {
  expect_inputs(name, in, 6, 6);
  expect_alike(name, in, 4);
  expect(in[5].rank() == 0 && is_integer(in[5].dtype()), name, "the step is one whole number, not " + text_of(in[5]));
  const double beta1 = a.number("beta1", 0.9), beta2 = a.number("beta2", 0.999), epsilon = a.number("epsilon", 1e-8);
  const double decay = a.number("weight_decay", 0);
  HTensor w = in[0], g = in[1];
  const HTensor lr = scalar_of(name, in[4], w);
  if (decay != 0 && kind == Decay::in_gradient) g = g + decay * w;
  if (decay != 0 && kind == Decay::decoupled) w = w * (1.0 - lr * decay);
  const HTensor m = in[2] + (g - in[2]) * (1 - beta1);
  const HTensor v = in[3] * beta2 + (1 - beta2) * square(g);
  // The corrections start near 0 (1 - 0.999^1): in f64 they keep all digits.
  const HTensor step = cast(in[5], DType::F64);
  const HTensor size = cast(cast(in[4], DType::F64) / (1.0 - pow(beta1, step)), w.dtype());
  const HTensor spread = cast(sqrt(1.0 - pow(beta2, step)), w.dtype());
  return {w - size * (m / (sqrt(v) / spread + epsilon)), m, v};
}
Values adam(const AttributeMap& a, Inputs in) { return adam_step("adam", a, in, Decay::in_gradient); }
Values adamw(const AttributeMap& a, Inputs in) { return adam_step("adamw", a, in, Decay::decoupled); }

}  // namespace

std::vector<Functional> optimizers() {
  return {
      {"sgd", "one step of gradient descent; with a velocity, of momentum or Nesterov's variant",
       "w [...], g [...], velocity [...]?, lr [] {momentum = 0, nesterov = false, weight_decay = 0} -> w [...], "
       "velocity [...]?",
       sgd, nullptr},
      {"adam", "one step of Adam (Kingma, Ba 2015)",
       "w [...], g [...], m [...], v [...], lr [], step [] {beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, "
       "weight_decay = 0} -> w [...], m [...], v [...]",
       adam, nullptr},
      {"adamw", "one step of Adam with decoupled weight decay (Loshchilov, Hutter 2019)",
       "w [...], g [...], m [...], v [...], lr [], step [] {beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, "
       "weight_decay = 0} -> w [...], m [...], v [...]",
       adamw, nullptr},
  };
}

}  // namespace harmonics::reference
