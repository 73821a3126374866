#include <harmonics/plugin.hpp>

#include "layers.hpp"

HARMONICS_PLUGIN("harmonics.layers", "0.1.0", "Apache-2.0", "Harmonics");

namespace {

using namespace layers;

class Layer : public harmonics::LayerFunction {
 public:
  explicit Layer(Body body) : body_(body) {}
  HTensor operator()(Scope& scope, const HTensor& x, const Arguments& arguments) const override {
    return body_(scope, x, arguments);
  }

 private:
  Body body_;
};

Argument numbers(const char* name, const char* otherwise, const char* description) {
  Argument a = Argument::integers(name, description);
  a.default_text = otherwise;
  return a;
}
Argument with_bias() { return Argument::flag("bias", true, "add a learned bias"); }

std::vector<Argument> recurrent_arguments() {
  return {Argument::integer("width", "size of the state; default: the target's width").in("1.."),
          Argument::integer("layers", 1, "number of stacked layers").in("1.."),
          Argument::flag("bidirectional", false, "also run backwards, and concatenate the results"),
          Argument::flag("last", false, "return only the state after the last position"),
          Argument::number("dropout", "0", "dropout between stacked layers: fraction of values zeroed while training")
              .in("0..<1"),
          with_bias()};
}

struct Row {
  const char *name, *description;
  Body body;
  std::vector<Argument> arguments;
  uint32_t flags;
};

std::vector<Row> rows() {
  return {
      {"affine",
       "learned map of the features: weight x + bias",
       affine,
       {Argument::integer("width", "number of outputs; default: the target's width").in("1.."), with_bias()},
       0},
      {"conv",
       "learned convolution over height and width",
       conv,
       {Argument::integer("channels", "number of output channels").in("1..").must(),
        numbers("kernel", "3", "size of the window").in("1.."), numbers("stride", "1", "stride").in("1.."),
        Argument::text("padding", "same", "\"same\", \"valid\" or the number of zeros on each side"),
        numbers("dilation", "1", "dilation: distance between the window's elements").in("1.."),
        Argument::integer("groups", 1, "number of channel groups with separate maps").in("1.."), with_bias()},
       0},
      {"maxpool",
       "largest value of each window",
       maxpool,
       {numbers("size", "2", "size of the window").in("1.."),
        Argument::integers("stride", "stride; default: the window size").in("1.."),
        numbers("padding", "0", "padding on each side; padding is never the maximum").in("0..")},
       0},
      {"avgpool",
       "mean of each window",
       avgpool,
       {numbers("size", "2", "size of the window").in("1.."),
        Argument::integers("stride", "stride; default: the window size").in("1.."),
        numbers("padding", "0", "padding on each side; padding is not included in the mean").in("0..")},
       0},
      {"norm",
       "normalises to zero mean and unit variance (rms: unit root mean square), then applies a learned gain and bias",
       norm,
       {Argument::text("kind", "layer", "kind of normalisation").in("layer|rms|batch|group|instance"),
        Argument::number("epsilon", "1e-5", "added to the variance").in("0<.."),
        Argument::number("momentum", "0.1", "batch: weight of the current batch in the running statistics").in("0..1"),
        Argument::integer("groups", "group: number of channel groups").in("1..")},
       0},
      {"dropout",
       "zeroes random values while training",
       dropout,
       {Argument::number("rate", "0.5", "fraction of values to zero").in("0..<1")},
       HX_MODE_ONLY},
      {"noise",
       "adds Gaussian noise while training",
       noise,
       {Argument::number("deviation", "0.1", "standard deviation of the noise").in("0..")},
       HX_MODE_ONLY},
      {"flatten", "flattens all features into one axis", flatten, {}, 0},
      {"embed",
       "a learned vector for each token",
       embed,
       {Argument::integer("width", "vector size; default: the target's width").in("1.."),
        Argument::integer("vocabulary", "number of tokens; default: as declared by the stream").in("1.."),
        Argument::number("deviation", "0.02", "initial standard deviation of the vectors").in("0..")},
       HX_TAKES_CLASSES},
      {"attention",
       "multi-head attention over the positions of a sequence",
       attention,
       {Argument::integer("heads", 1, "number of heads").in("1.."),
        Argument::flag("causal", false, "causal: a position does not attend to later ones"),
        Argument::flag("rope", false, "rotary position embedding"),
        Argument::layer("memory", "layer whose output provides keys and values; default: the source"),
        Argument::integer("kv_heads", "number of key and value heads, each shared by a group of heads; default: heads")
            .in("1.."),
        with_bias()},
       0},
      {"lstm", "long short-term memory over the positions of a sequence", lstm, recurrent_arguments(), 0},
      {"gru", "gated recurrent units over the positions of a sequence", gru, recurrent_arguments(), 0},
      {"last", "the value at the last position of a sequence", last, {}, 0},
      {"mean", "the mean over the positions of a sequence", mean, {}, 0},
      {"prelu",
       "x where positive, a learned fraction of it elsewhere",
       prelu,
       {Argument::flag("channels", false, "one factor per channel instead of a single one"),
        Argument::number("slope", "0.25", "initial factor of negative inputs")},
       HX_AFTER_MAP},
      {"glu", "first half of the features times sigmoid of the second half", glu, {}, 0},
      {"skip", "passes its source through unchanged (residual connection)", skip, {}, HX_IDENTITY_SKIP},
      {"concat",
       "features of the source followed by those of another layer",
       concat,
       {Argument::layer("with", "the other layer").must()},
       0},
      {"mul",
       "the source times another layer, element by element",
       mul,
       {Argument::layer("with", "the other layer").must()},
       0},
      {"select",
       "one layer where the source is above a number, another elsewhere",
       select,
       {Argument::layer("on_true", "values where the source is above the number").must(),
        Argument::layer("on_false", "values elsewhere").must(),
        Argument::number("above", "0", "the number that the source is compared with")},
       0},
  };
}

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  for (const Row& row : rows())
    registry.register_layer(row.name, std::make_shared<Layer>(row.body), row.description, row.arguments, row.flags);
}
