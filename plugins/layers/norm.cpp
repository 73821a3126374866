#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "layers.hpp"

namespace layers {

namespace {

using harmonics::constant_init;
using harmonics::quantity;

HTensor layer_norm(Scope& scope, const HTensor& x, double epsilon) {
  const Shape own = x.shape().from(scope.leading());
  const HTensor gain = scope.parameter("gain", own, constant_init(1)),
                bias = scope.parameter("bias", own, constant_init(0));
  const int64_t axes = own.rank();
  return harmonics::call("layer_norm", {x, gain, bias}, Attributes().set("epsilon", epsilon).set("norm_axes", axes))
      .at(0);
}

HTensor rms_norm(Scope& scope, const HTensor& x, double epsilon) {
  const HTensor flattened = flat(scope, x);
  const HTensor gain = scope.parameter("gain", {flattened.shape().back()}, constant_init(1));
  return harmonics::reshape(harmonics::call("rms_norm", {flattened, gain}, Attributes().set("epsilon", epsilon)).at(0),
                            x.shape());
}

// Merges the leading axes into one sample axis, so that channels come first after it.
HTensor as_samples(const Scope& scope, const HTensor& x) {
  const Shape s = x.shape(), features = s.from(scope.leading());
  Shape shape{s.slice(0, scope.leading()).count()};
  for (int64_t d : features) shape.push_back(d);
  return harmonics::reshape(x, shape);
}

HTensor along_channels(const HTensor& parameter, const HTensor& x) {
  Shape shape = parameter.shape();
  for (uint32_t i = 2; i < x.rank(); ++i) shape.push_back(1);
  return harmonics::reshape(parameter, shape);
}

// `groups` = 0: one group per channel.
HTensor group_norm(Scope& scope, const HTensor& given, double epsilon, int64_t groups) {
  if (given.rank() <= scope.leading())
    throw Error(ErrorKind::Shape, "norm(\"group\") needs channels; a sample here is a single number");
  const HTensor x = as_samples(scope, given);
  const int64_t channels = x.shape()[1];
  if (groups < 0 || (groups > 0 && channels % groups))
    throw Error(ErrorKind::Shape,
                "groups is " + std::to_string(groups) + "; it must divide the " + quantity(channels, "channel"));
  const HTensor gain = scope.parameter("gain", {channels}, constant_init(1)),
                bias = scope.parameter("bias", {channels}, constant_init(0));
  const Attributes attributes = Attributes().set("epsilon", epsilon).set("groups", groups ? groups : channels);
  return harmonics::reshape(harmonics::call("group_norm", {x, gain, bias}, attributes).at(0), given.shape());
}

struct Running {
  HTensor mean, variance;
};

HTensor normalise_by_batch(Scope& scope, const HTensor& x, const HTensor& gain, const HTensor& bias,
                           const Running& running, double epsilon, double momentum) {
  const double n = static_cast<double>(x.size() / x.shape()[1]);
  if (n < 2)
    throw Error(ErrorKind::Shape,
                "norm(\"batch\") cannot train on one value per channel, a batch is " + x.shape().str())
        .note("use a larger batch, or norm(\"layer\")");
  const auto r = harmonics::call("batch_norm", {x, gain, bias}, Attributes().set("epsilon", epsilon));
  const HTensor variance =
      maximum(1.0 / (r.at(2) * r.at(2)) - epsilon, 0) * (n / (n - 1));  // unbiased variance, as PyTorch stores it
  scope.update("running_mean", running.mean * (1 - momentum) + r.at(1) * momentum);
  scope.update("running_variance", running.variance * (1 - momentum) + variance * momentum);
  return r.at(0);
}

HTensor batch_norm(Scope& scope, const HTensor& given, double epsilon, double momentum) {
  if (given.rank() <= scope.leading())
    throw Error(ErrorKind::Shape, "norm(\"batch\") needs channels; a sample here is a single number");
  const HTensor x = as_samples(scope, given);
  const Shape channels{x.shape()[1]};
  const HTensor gain = scope.parameter("gain", channels, constant_init(1)),
                bias = scope.parameter("bias", channels, constant_init(0));
  const Running running{scope.state("running_mean", channels, constant_init(0)),
                        scope.state("running_variance", channels, constant_init(1))};
  if (scope.training())
    return harmonics::reshape(normalise_by_batch(scope, x, gain, bias, running, epsilon, momentum), given.shape());
  const HTensor scale = gain * harmonics::rsqrt(running.variance + epsilon);
  const HTensor y = (x - along_channels(running.mean, x)) * along_channels(scale, x) + along_channels(bias, x);
  return harmonics::reshape(y, given.shape());
}

}  // namespace

HTensor norm(Scope& scope, const HTensor& x, const Arguments& a) {
  const std::string kind = a.text("kind", "layer");
  const double epsilon = a.number("epsilon", 1e-5), momentum = a.number("momentum", 0.1);
  if (kind == "rms") return rms_norm(scope, x, epsilon);
  if (kind == "batch") return batch_norm(scope, x, epsilon, momentum);
  if (kind == "instance") return group_norm(scope, x, epsilon, 0);
  if (kind == "group") {
    if (!a.has("groups")) throw Error(ErrorKind::Type, "norm(\"group\") requires groups, e.g. groups=8");
    return group_norm(scope, x, epsilon, a.integer("groups"));
  }
  return layer_norm(scope, x, epsilon);
}

HTensor dropout(Scope& scope, const HTensor& x, const Arguments& a) {
  const double rate = a.number("rate", 0.5);
  if (rate == 0 || !scope.training()) return x;
  return harmonics::call1("dropout", {x, scope.random(x.shape())}, Attributes().set("rate", rate));
}

// Draws Gaussian noise by the Box-Muller method. 1 - u is above 0, so the logarithm is finite.
HTensor noise(Scope& scope, const HTensor& x, const Arguments& a) {
  const double deviation = a.number("deviation", 0.1);
  if (deviation == 0 || !scope.training()) return x;
  const HTensor u = scope.random(x.shape()), turn = scope.random(x.shape());
  const HTensor drawn = deviation * sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * turn);
  return x + (x.dtype() == DType::F32 ? drawn : cast(drawn, x.dtype()));
}

}  // namespace layers
