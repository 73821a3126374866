// The activations of the catalogue: names, arguments and help. Their meaning is defined by the operations and
// functionals that they call.
#include <harmonics/plugin.hpp>

HARMONICS_PLUGIN("harmonics.activations", "0.1.0", "Apache-2.0", "Harmonics");

namespace {

using namespace harmonics;

class Activation : public ActivationFunction {
 public:
  using Body = HTensor (*)(const HTensor& x, const Arguments& arguments);
  explicit Activation(Body body) : body_(body) {}
  HTensor operator()(const HTensor& x) const override { return body_(x, {}); }
  HTensor operator()(const HTensor& x, const Arguments& arguments) const override { return body_(x, arguments); }

 private:
  Body body_;
};

HTensor leaky_relu(const HTensor& x, const Arguments& a) {
  return call1("leaky_relu", {x}, Attributes().set("slope", a.number("slope", 0.01)));
}

HTensor gelu(const HTensor& x, const Arguments& a) {
  const std::string approximate = a.text("approximate", "none");
  return call1("gelu", {x}, Attributes().set("approximate", approximate));
}

HTensor elu(const HTensor& x, const Arguments& a) {
  return call1("elu", {x}, Attributes().set("alpha", a.number("alpha", 1)));
}

HTensor celu(const HTensor& x, const Arguments& a) {
  const double alpha = a.number("alpha", 1);
  return call1("celu", {x}, Attributes().set("alpha", alpha));
}

HTensor hardtanh(const HTensor& x, const Arguments& a) {
  const double low = a.number("low", -1), high = a.number("high", 1);
  if (!(low < high))
    throw Error(ErrorKind::Type,
                "low is " + std::to_string(low) + " and high " + std::to_string(high) + "; low must be below high");
  return call1("hardtanh", {x}, Attributes().set("low", low).set("high", high));
}

struct Row {
  const char *name, *description;
  Activation::Body body;
  std::vector<Argument> arguments;
};

std::vector<Row> rows() {
  return {
      {"relu", "max(x, 0)", [](const HTensor& x, const Arguments&) { return call1("relu", {x}); }, {}},
      {"leaky_relu",
       "x where positive, a fraction of it elsewhere",
       leaky_relu,
       {Argument::number("slope", "0.01", "factor of negative inputs")}},
      {"sigmoid",
       "1 / (1 + exp(-x)), between 0 and 1",
       [](const HTensor& x, const Arguments&) { return logistic(x); },
       {}},
      {"tanh",
       "hyperbolic tangent, between -1 and 1",
       [](const HTensor& x, const Arguments&) { return harmonics::tanh(x); },
       {}},
      {"softmax",
       "exp(x) divided by its sum over the last axis: probabilities",
       [](const HTensor& x, const Arguments&) { return softmax(x); },
       {}},
      {"gelu",
       "x times the cumulative distribution function of the normal distribution",
       gelu,
       {Argument::text("approximate", "none", "approximation: none or tanh").in("none|tanh")}},
      {"silu", "x times sigmoid(x) (swish)", [](const HTensor& x, const Arguments&) { return call1("silu", {x}); }, {}},
      {"elu",
       "x where positive, alpha (exp(x) - 1) elsewhere",
       elu,
       {Argument::number("alpha", "1", "the limit for very negative x is -alpha")}},
      {"softplus",
       "log(1 + exp(x)), a smooth relu",
       [](const HTensor& x, const Arguments&) { return call1("softplus", {x}); },
       {}},
      {"selu",
       "elu, scaled to preserve mean 0 and variance 1",
       [](const HTensor& x, const Arguments&) { return call1("selu", {x}); },
       {}},
      {"celu",
       "x where positive, alpha (exp(x / alpha) - 1) elsewhere",
       celu,
       {Argument::number("alpha", "1", "the limit for very negative x is -alpha").in("0<..")}},
      {"mish", "x times tanh(softplus(x))", [](const HTensor& x, const Arguments&) { return call1("mish", {x}); }, {}},
      {"relu6",
       "x clamped to [0, 6]",
       [](const HTensor& x, const Arguments&) {
         return call1("hardtanh", {x}, Attributes().set("low", 0.0).set("high", 6.0));
       },
       {}},
      {"hardtanh",
       "x clamped to [low, high]",
       hardtanh,
       {Argument::number("low", "-1", "lower bound"), Argument::number("high", "1", "upper bound")}},
      {"hardsigmoid",
       "x / 6 + 1/2, clamped to [0, 1]",
       [](const HTensor& x, const Arguments&) { return call1("hardsigmoid", {x}); },
       {}},
      {"hardswish",
       "x times hardsigmoid(x)",
       [](const HTensor& x, const Arguments&) { return call1("hardswish", {x}); },
       {}},
      {"softsign",
       "x / (1 + |x|), between -1 and 1",
       [](const HTensor& x, const Arguments&) { return x / (1.0 + harmonics::abs(x)); },
       {}},
      {"logsigmoid",
       "logarithm of sigmoid(x)",
       [](const HTensor& x, const Arguments&) { return -call1("softplus", {-x}); },
       {}},
      {"log_softmax",
       "logarithm of softmax(x): log-probabilities along the last axis",
       [](const HTensor& x, const Arguments&) { return log_softmax(x); },
       {}},
      {"identity", "x itself", [](const HTensor& x, const Arguments&) { return x; }, {}},
  };
}

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  for (const Row& row : rows())
    registry.register_activation(row.name, std::make_shared<Activation>(row.body), row.description, row.arguments);
}
