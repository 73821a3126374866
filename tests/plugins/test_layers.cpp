#include <catch2/catch.hpp>

#include <cmath>

#include "tests/plugins/catalogue.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

HTensor ran_layer(const char* name, TestScope& scope, const HTensor& x, const Texts& texts = {},
                  const std::vector<std::pair<std::string, HTensor>>& layers = {}) {
  return run(x, [&](const HTensor& in) { return layer(name, scope, in, texts, layers); }).y;
}
std::string layer_error(const char* name, const HTensor& x, const Texts& texts = {},
                        const std::vector<std::pair<std::string, HTensor>>& layers = {}, uint32_t leading = 1) {
  TestScope scope;
  scope.leading_axes = leading;
  const std::string prefix = std::string("layer '") + name + "' of plugin 'harmonics.layers': ";
  const std::string said = error_of([&] { ran_layer(name, scope, x, texts, layers); });
  CHECK(said.rfind(prefix, 0) == 0);
  return said.substr(std::min(prefix.size(), said.size()));
}
std::vector<std::string> names(const TestScope& scope) {
  std::vector<std::string> result;
  for (const auto& [name, value] : scope.values) result.push_back(name + " " + value.shape().str());
  return result;
}
using Names = std::vector<std::string>;

float mean_of(const Floats& v) {
  double sum = 0;
  for (float x : v) sum += x;
  return static_cast<float>(sum / static_cast<double>(v.size()));
}

}  // namespace

TEST_CASE("layers: affine flattens a sample, and maps each position of a sequence") {
  TestScope scope;
  const HTensor x = ramp({2, 3, 4});
  const HTensor y = ran_layer("affine", scope, x, {{"width", "5"}});
  CHECK(y.shape() == Shape{2, 5});
  CHECK(names(scope) == Names{"bias [5]", "weight [5, 12]"});
  CHECK(scope.inits.at("weight").kind == HX_INIT_KAIMING_UNIFORM);
  CHECK(scope.inits.at("bias").a == 12);
  check_same(y, linear(reshape(x, {2, 12}), scope.values.at("weight"), scope.values.at("bias")));

  TestScope sequence;
  sequence.leading_axes = 2;
  sequence.target_width = 6;
  CHECK(ran_layer("affine", sequence, x, {{"bias", "false"}}).shape() == Shape{2, 3, 6});
  CHECK(names(sequence) == Names{"weight [6, 4]"});
  TestScope scalars;
  CHECK(ran_layer("affine", scalars, ramp({3}), {{"width", "2"}}).shape() == Shape{3, 2});
}

TEST_CASE("layers: one that needs the target's width says so") {
  TestScope scope;
  CHECK_THROWS_AS(ran_layer("affine", scope, ramp({2, 3})), detail::NeedsWidth);
  CHECK(layer_error("affine", ramp({2, 3}), {{"width", "0"}}) == "a width of 0 is not possible; the minimum is 1");
}

TEST_CASE("layers: conv keeps the size by default and supports strides, padding, dilation and groups") {
  const HTensor x = ramp({2, 4, 7, 6});
  const auto shape = [&](const Texts& texts) {
    TestScope scope;
    return ran_layer("conv", scope, x, texts).shape();
  };
  CHECK(shape({{"channels", "8"}}) == Shape{2, 8, 7, 6});
  CHECK(shape({{"channels", "8"}, {"kernel", "4"}}) == Shape{2, 8, 7, 6});
  CHECK(shape({{"channels", "8"}, {"stride", "2"}}) == Shape{2, 8, 4, 3});
  CHECK(shape({{"channels", "8"}, {"kernel", "3,5"}, {"padding", "valid"}}) == Shape{2, 8, 5, 2});
  CHECK(shape({{"channels", "8"}, {"padding", "2"}}) == Shape{2, 8, 9, 8});
  CHECK(shape({{"channels", "8"}, {"dilation", "2"}, {"padding", "valid"}}) == Shape{2, 8, 3, 2});
  TestScope scope;
  ran_layer("conv", scope, x, {{"channels", "8"}, {"groups", "2"}, {"kernel", "5,3"}});
  CHECK(names(scope) == Names{"bias [8]", "weight [8, 2, 5, 3]"});
  CHECK(scope.inits.at("weight").a == 30);
}

TEST_CASE("layers: conv sums the window times the weight") {
  TestScope scope;
  scope.values["weight"] = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  const HTensor x = floats({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const Texts texts{{"channels", "1"}, {"kernel", "2"}, {"bias", "false"}};
  Texts valid = texts;
  valid.push_back({"padding", "valid"});
  check_close(ran_layer("conv", scope, x, valid), {1 + 4 + 12 + 20, 2 + 6 + 15 + 24});
  check_close(ran_layer("conv", scope, x, texts), {37, 47, 21, 14, 17, 6});  // odd padding goes to the end
}

TEST_CASE("layers: an input without image axes is refused") {
  CHECK(layer_error("conv", ramp({2, 784}), {{"channels", "8"}}) ==
        "conv works on images [channels, height, width]; a sample here is [784]\n"
        "declare the shape where the stream begins, e.g. producer NAME {1, 28, 28};");
  CHECK(layer_error("maxpool", ramp({2, 28, 28})) ==
        "maxpool works on images [channels, height, width]; a sample here is [28, 28]\n"
        "declare the channels where the stream begins: producer NAME {1, 28, 28};");
  const HTensor image = ramp({1, 3, 4, 4});
  CHECK(layer_error("conv", image, {{"channels", "4"}, {"groups", "2"}}) ==
        "groups is 2; it must divide the 3 input channels and the 4 output channels");
  CHECK(layer_error("conv", image, {{"channels", "4"}, {"kernel", "5"}, {"padding", "valid"}}) ==
        "conv: a window that reaches over 5 does not fit an image of [3, 4, 4], padded to 4\n"
        "make the kernel smaller, or pad: padding=\"same\"");
  CHECK(layer_error("conv", image, {{"channels", "4"}, {"padding", "some"}}) ==
        "padding is \"some\"; it can be \"same\", \"valid\" or a whole number");
  CHECK(layer_error("conv", image, {{"channels", "4"}, {"kernel", "1,2,3"}}) ==
        "kernel has 3 numbers; give one, or [height, width]");
  CHECK(layer_error("conv", image, {{"channels", "4"}, {"stride", "0"}}) == "stride is [0, 0]; the minimum is 1");
}

TEST_CASE("layers: pooling takes the maximum or the mean of each window") {
  TestScope scope;
  const HTensor x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 8, 7, 6, 5});
  check_close(ran_layer("maxpool", scope, x), {8, 6});
  check_close(ran_layer("avgpool", scope, x), {4.5f, 4.5f});
  check_close(ran_layer("maxpool", scope, x, {{"size", "1,2"}, {"stride", "1"}}), {2, 3, 4, 8, 7, 6});
  check_close(ran_layer("avgpool", scope, floats({1, 1, 1, 1}, {3}), {{"padding", "1"}}),
              {3});  // padding does not count
  CHECK(layer_error("maxpool", x, {{"padding", "2"}}) == "padding is 2; at most half of the window's 2");
}

TEST_CASE("layers: norm over a sample gives mean 0 and variance 1, then gain and bias") {
  TestScope scope;
  const HTensor y = ran_layer("norm", scope, ramp({2, 3, 4}));
  CHECK(names(scope) == Names{"bias [3, 4]", "gain [3, 4]"});
  const Floats v = numbers(y);
  for (size_t s = 0; s < 2; ++s) {
    const Floats sample(v.begin() + static_cast<std::ptrdiff_t>(12 * s),
                        v.begin() + static_cast<std::ptrdiff_t>(12 * s + 12));
    Floats squares;
    for (float x : sample) squares.push_back(x * x);
    CHECK(mean_of(sample) == Approx(0).margin(1e-5));
    CHECK(mean_of(squares) == Approx(1).margin(1e-3));
  }
  TestScope sequence;
  sequence.leading_axes = 2;
  CHECK(ran_layer("norm", sequence, ramp({2, 3, 4})).shape() == Shape{2, 3, 4});
  CHECK(names(sequence) == Names{"bias [4]", "gain [4]"});
}

TEST_CASE("layers: norm rms gives unit root mean square, then gain") {
  TestScope scope;
  check_close(ran_layer("norm", scope, floats({1, 2, 2}, {1, -1, 7, 7}), {{"kind", "rms"}}), {0.2f, -0.2f, 1.4f, 1.4f},
              1e-4);
  CHECK(names(scope) == Names{"gain [4]"});
}

TEST_CASE("layers: norm batch uses the batch's statistics in training, running ones afterwards") {
  TestScope scope;
  scope.is_training = true;
  const HTensor x = floats({4, 2}, {1, 10, 2, 10, 3, 30, 4, 30});
  Tracer tracer("test");
  const HTensor y = layer("norm", scope, tracer.input("x", type_of(x)), {{"kind", "batch"}});
  tracer.output("y", y);
  tracer.output("mean", scope.updates.at("running_mean"));
  tracer.output("variance", scope.updates.at("running_variance"));
  const Values results = interpret(tracer.take(), {{"x", x}});
  const float a = 1.5f / std::sqrt(1.25f), b = 0.5f / std::sqrt(1.25f);
  check_close(results[0], {-a, -1, -b, -1, b, 1, a, 1}, 1e-4);
  check_close(results[1], {0.25f, 2}, 1e-5);                                    // 0.9 * 0 + 0.1 * mean
  check_close(results[2], {0.9f + 0.1f * 5 / 3, 0.9f + 0.1f * 400 / 3}, 1e-3);  // 0.9 * 1 + 0.1 * unbiased variance

  TestScope after;
  after.values["running_mean"] = floats({2}, {1, 2});
  after.values["running_variance"] = floats({2}, {4, 9});
  check_close(ran_layer("norm", after, floats({1, 2}, {5, 8}), {{"kind", "batch"}}), {2, 2}, 1e-4);
  CHECK(after.updates.empty());
  TestScope images;
  CHECK(ran_layer("norm", images, ramp({2, 3, 4, 4}), {{"kind", "batch"}}).shape() == Shape{2, 3, 4, 4});
  CHECK(images.values.at("gain").shape() == Shape{3});
}

TEST_CASE("layers: norm refuses unknown arguments") {
  CHECK(layer_error("norm", ramp({2, 3}), {{"kind", "group"}}) == "norm(\"group\") requires groups, e.g. groups=8");
  CHECK(layer_error("norm", ramp({2, 3}), {{"kind", "group"}, {"groups", "2"}}) ==
        "groups is 2; it must divide the 3 channels");
  TestScope scope;
  scope.is_training = true;
  CHECK(error_of([&] {
          ran_layer("norm", scope, ramp({1, 3}), {{"kind", "batch"}});
        }) ==
        "layer 'norm' of plugin 'harmonics.layers': norm(\"batch\") cannot train on one value per channel, a batch is "
        "[1, 3]\n"
        "use a larger batch, or norm(\"layer\")");
}

TEST_CASE("layers: norm by groups normalizes each sample's channel groups, by instance each channel") {
  TestScope scope;
  const HTensor x = floats({1, 4, 2}, {1, 3, 5, 7, 0, 0, 10, 10});
  const float unit = std::sqrt(5.0f);
  check_close(ran_layer("norm", scope, x, {{"kind", "group"}, {"groups", "2"}}),
              {-3 / unit, -1 / unit, 1 / unit, 3 / unit, -1, -1, 1, 1}, 1e-4);
  CHECK(names(scope) == Names{"bias [4]", "gain [4]"});
  check_close(ran_layer("norm", scope, x, {{"kind", "instance"}}), {-1, 1, -1, 1, 0, 0, 0, 0}, 1e-4);
  TestScope sequence;  // positions count as samples
  sequence.leading_axes = 2;
  check_close(ran_layer("norm", sequence, x, {{"kind", "group"}, {"groups", "1"}}), {-1, 1, -1, 1, 0, 0, 0, 0}, 1e-4);
}

TEST_CASE("layers: prelu has a slope parameter, glu halves the features") {
  TestScope scope;
  const HTensor x = floats({2, 2}, {-4, 2, 1, -8});
  check_close(ran_layer("prelu", scope, x), {-1, 2, 1, -2});
  CHECK(names(scope) == Names{"weight [1]"});
  TestScope channels;
  channels.values["weight"] = floats({2}, {0.5f, -1});
  check_close(ran_layer("prelu", channels, x, {{"channels", "true"}}), {-2, 2, 1, 8});
  TestScope starts;
  check_close(ran_layer("prelu", starts, x, {{"slope", "0.5"}}), {-2, 2, 1, -4});
  CHECK(layer_error("prelu", ramp({3}), {{"channels", "true"}}) ==
        "prelu(channels=true) needs channels; a sample here is a single number");
  check_close(ran_layer("glu", scope, floats({1, 4}, {1, 2, 0, 100})), {0.5f, 2});
  CHECK(ran_layer("glu", scope, ramp({2, 6, 4, 4})).shape() == Shape{2, 3, 4, 4});
  CHECK(layer_error("glu", ramp({2, 3})) ==
        "glu halves the first axis of features, which is 3 long\n"
        "write a map of an even width before it: -(affine(256), glu)-> gives 128");
}

TEST_CASE("layers: last and mean return one value of a sequence") {
  TestScope scope;
  scope.leading_axes = 2;
  const HTensor x = floats({1, 3, 2}, {1, 2, 3, 4, 8, 0});
  check_close(ran_layer("last", scope, x), {8, 0});
  CHECK(scope.result_leading == 1u);
  check_close(ran_layer("mean", scope, x), {4, 2});
  CHECK(layer_error("last", ramp({2, 3})) ==
        "last works on sequences; a sample here is [3]\n"
        "use a producer of sequences (file:PATH?window=256), or declare one: {*, 64}");
}

TEST_CASE("layers: lstm and gru have PyTorch's parameters, layers and directions") {
  const HTensor x = ramp({2, 5, 3});
  TestScope plain;
  plain.leading_axes = 2;
  CHECK(ran_layer("lstm", plain, x, {{"width", "4"}}).shape() == Shape{2, 5, 4});
  CHECK(names(plain) == Names{"bias_hh_l0 [16]", "bias_ih_l0 [16]", "weight_hh_l0 [16, 4]", "weight_ih_l0 [16, 3]"});
  CHECK(plain.inits.at("weight_ih_l0").kind == HX_INIT_KAIMING_UNIFORM);
  CHECK(plain.inits.at("weight_ih_l0").a == 4);
  CHECK_FALSE(plain.result_leading);

  TestScope stacked;
  stacked.leading_axes = 2;
  stacked.target_width = 8;
  const Texts both{{"layers", "2"}, {"bidirectional", "true"}, {"bias", "false"}};
  const HTensor all = ran_layer("gru", stacked, x, both);
  CHECK(all.shape() == Shape{2, 5, 8});
  CHECK(names(stacked) == Names{"weight_hh_l0 [12, 4]", "weight_hh_l0_reverse [12, 4]", "weight_hh_l1 [12, 4]",
                                "weight_hh_l1_reverse [12, 4]", "weight_ih_l0 [12, 3]", "weight_ih_l0_reverse [12, 3]",
                                "weight_ih_l1 [12, 8]", "weight_ih_l1_reverse [12, 8]"});
  Texts only_last = both;
  only_last.push_back({"last", "true"});
  const HTensor end = ran_layer("gru", stacked, x, only_last);
  CHECK(stacked.result_leading == 1u);
  const HTensor forth = slice(all, {0, 4, 0}, {2, 5, 4}), back = slice(all, {0, 0, 4}, {2, 1, 8});
  check_same(end, reshape(concat({forth, back}, 2), {2, 8}));

  TestScope rows;  // an image's rows are positions
  CHECK(ran_layer("lstm", rows, x, {{"width", "4"}, {"last", "true"}}).shape() == Shape{2, 4});
  TestScope noisy;
  noisy.is_training = true;
  noisy.random_numbers = full(DType::F32, {2, 5, 4}, 0.9);
  CHECK(ran_layer("lstm", noisy, x, {{"width", "4"}, {"layers", "2"}, {"dropout", "0.5"}}).shape() == Shape{2, 5, 4});
}

TEST_CASE("layers: recurrent ones report their requirements") {
  CHECK(layer_error("lstm", ramp({2, 3}), {{"width", "4"}}) ==
        "lstm works on sequences [positions, features]; a sample here is [3]\n"
        "use a producer of sequences (file:PATH?window=256), or declare one: {*, 64}");
  const HTensor x = ramp({2, 5, 3});
  CHECK(layer_error("gru", x, {{"width", "0"}}, {}, 2) == "a width of 0 is not possible; the minimum is 1");
  TestScope odd;
  odd.leading_axes = 2;
  odd.target_width = 7;
  CHECK(error_of([&] {
          ran_layer("gru", odd, x, {{"bidirectional", "true"}});
        }) ==
        "layer 'gru' of plugin 'harmonics.layers': gru goes both ways, but the target's width of 7 cannot be halved");
  TestScope open;
  CHECK_THROWS_AS(ran_layer("gru", open, x), detail::NeedsWidth);
}

TEST_CASE("layers: dropout acts only in training") {
  TestScope scope;
  const HTensor x = floats({1, 4}, {1, 2, 3, 4});
  check_close(ran_layer("dropout", scope, x), {1, 2, 3, 4});
  scope.is_training = true;
  scope.random_numbers = floats({1, 4}, {0.1f, 0.3f, 0.2f, 0.9f});
  check_close(ran_layer("dropout", scope, x, {{"rate", "0.25"}}), {0, 2 / 0.75f, 0, 4 / 0.75f});
}

TEST_CASE("layers: noise acts only in training") {
  TestScope scope;
  const HTensor x = floats({1, 4}, {1, 2, 3, 4});
  check_close(ran_layer("noise", scope, x), {1, 2, 3, 4});
  scope.is_training = true;
  check_close(ran_layer("noise", scope, x, {{"deviation", "0"}}), {1, 2, 3, 4});
  scope.random_numbers = floats({1, 4}, {0.1f, 0.3f, 0.2f, 0.9f});  // for both radius and angle
  check_close(ran_layer("noise", scope, x, {{"deviation", "0.25"}}), {1.0928435f, 1.9347510f, 3.0516095f, 4.4340307f});
}

TEST_CASE("layers: embed looks up a row for each symbol") {
  TestScope scope;
  scope.symbols = 5;
  scope.leading_axes = 2;
  const HTensor ids = HTensor::from<uint8_t>({1, 3}, {4, 0, 4});
  const HTensor y = ran_layer("embed", scope, ids, {{"width", "2"}});
  CHECK(names(scope) == Names{"weight [5, 2]"});
  CHECK(scope.inits.at("weight").kind == HX_INIT_NORMAL);
  const Floats table = numbers(scope.values.at("weight"));
  check_close(y, {table[8], table[9], table[0], table[1], table[8], table[9]});
  CHECK(layer_error("embed", ids, {{"width", "2"}}) ==
        "embed needs the number of different tokens\nwrite it: embed(vocabulary=256)");
  CHECK(
      layer_error("embed", ramp({2, 2}), {{"width", "2"}, {"vocabulary", "3"}}).find("not a stream of whole numbers") !=
      std::string::npos);
}

TEST_CASE("layers: attention mixes positions by similarity") {
  // Computed by plain loops: one head, weights from the scope.
  TestScope scope;
  scope.leading_axes = 2;
  const HTensor x = ramp({1, 3, 4}, 0.2f);
  for (const bool causal : {false, true}) {
    const HTensor y = ran_layer("attention", scope, x, {{"causal", causal ? "true" : "false"}});
    const auto projected = [&](const char* name) {
      return linear(x, scope.values.at(std::string(name) + ".weight"), scope.values.at(std::string(name) + ".bias"));
    };
    const HTensor q = projected("query"), k = projected("key"), v = projected("value");
    const Floats qs = numbers(q), ks = numbers(k), vs = numbers(v);
    Floats mixed(12, 0);
    for (size_t t = 0; t < 3; ++t) {
      double weights[3] = {}, sum = 0;
      for (size_t s = 0; s < (causal ? t + 1 : 3); ++s) {
        double dot = 0;
        for (size_t d = 0; d < 4; ++d) dot += static_cast<double>(qs[4 * t + d]) * ks[4 * s + d];
        sum += weights[s] = std::exp(dot / 2);
      }
      for (size_t s = 0; s < 3; ++s)
        for (size_t d = 0; d < 4; ++d) mixed[4 * t + d] += static_cast<float>(weights[s] / sum) * vs[4 * s + d];
    }
    check_same(y, linear(floats({1, 3, 4}, mixed), scope.values.at("output.weight"), scope.values.at("output.bias")));
  }
}

TEST_CASE("layers: attention has heads, shared keys, rotary positions and a memory") {
  const HTensor x = ramp({2, 3, 8});
  TestScope scope;
  scope.leading_axes = 2;
  CHECK(ran_layer("attention", scope, x, {{"heads", "4"}, {"kv_heads", "2"}, {"rope", "true"}, {"bias", "false"}})
            .shape() == Shape{2, 3, 8});
  CHECK(names(scope) ==
        Names{"key.weight [4, 8]", "output.weight [8, 8]", "query.weight [8, 8]", "value.weight [4, 8]"});
  TestScope cross;
  cross.leading_axes = 2;
  CHECK(ran_layer("attention", cross, x, {{"heads", "2"}}, {{"memory", ramp({2, 5, 6})}}).shape() == Shape{2, 3, 8});
  CHECK(cross.values.at("key.weight").shape() == Shape{8, 6});
  CHECK(layer_error("attention", x, {{"heads", "3"}}, {}, 2) == "heads is 3; it must divide the 8 features");
  CHECK(layer_error("attention", x, {{"heads", "4"}, {"kv_heads", "3"}}, {}, 2) ==
        "kv_heads is 3; it must divide the 4 heads");
  CHECK(layer_error("attention", x, {{"heads", "8"}, {"rope", "true"}}, {}, 2) ==
        "rope rotates pairs of features, but a head has 1 of them");
  CHECK(layer_error("attention", x, {{"rope", "true"}}, {{"memory", x}}, 2) ==
        "rope counts positions of one sequence; it cannot be combined with memory");
  CHECK(layer_error("attention", ramp({2, 8}))
            .find("attention works on sequences [positions, features]; a sample of the source is [8]") == 0);
}

TEST_CASE("layers: skip, flatten, concat and mul") {
  TestScope scope;
  const HTensor x = floats({1, 2, 2}, {1, 2, 3, 4});
  check_same(ran_layer("skip", scope, x), x);
  CHECK(ran_layer("flatten", scope, x).shape() == Shape{1, 4});
  check_close(ran_layer("concat", scope, x, {}, {{"with", floats({1, 1, 2}, {5, 6})}}), {1, 2, 3, 4, 5, 6});
  check_close(ran_layer("mul", scope, x, {}, {{"with", x}}), {1, 4, 9, 16});
  TestScope sequence;
  sequence.leading_axes = 2;
  check_close(ran_layer("concat", sequence, x, {}, {{"with", floats({1, 2, 1}, {5, 6})}}), {1, 2, 5, 3, 4, 6});
  CHECK(layer_error("concat", x, {}, {{"with", ramp({1, 2, 3})}}) ==
        "concat joins along the first axis of features; [2, 2] and [2, 3] differ in others");
  CHECK(layer_error("mul", x, {}, {{"with", ramp({1, 4})}}) ==
        "mul multiplies element by element; [2, 2] and [4] differ in shape");
  CHECK(names(scope).empty());
}

TEST_CASE("layers: select takes each element, or all features of a sample or position, from one of two layers") {
  TestScope scope, sequence;
  sequence.leading_axes = 2;
  const HTensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6}), b = floats({2, 3}, {-1, -2, -3, -4, -5, -6});
  const auto selected = [&](TestScope& at, const HTensor& condition, const HTensor& from, const HTensor& otherwise,
                            const Texts& texts = {}) {
    return ran_layer("select", at, condition, texts, {{"on_true", from}, {"on_false", otherwise}});
  };
  const HTensor each = floats({2, 3}, {1, 0, -1, NAN, 0.1f, 2});  // 0 and NaN are not above 0
  check_close(selected(scope, each, a, b), {1, -2, -3, -4, 5, 6});
  check_close(selected(scope, each, a, b, {{"above", "0.5"}}), {1, -2, -3, -4, -5, 6});
  check_close(selected(scope, floats({2, 1}, {-1, 1}), a, b), {-1, -2, -3, 4, 5, 6});
  check_close(selected(scope, floats({2}, {1, -1}), a, b), {1, 2, 3, -4, -5, -6});
  const HTensor c = ramp({1, 2, 2}), d = ramp({1, 2, 2}, 0.5f);
  const Floats from_c = numbers(c), from_d = numbers(d);
  check_close(selected(sequence, floats({1, 2, 1}, {1, -1}), c, d), {from_c[0], from_c[1], from_d[2], from_d[3]});
  check_close(selected(scope, floats({1, 1, 2}, {1, -1}), c, d), {from_c[0], from_d[1], from_c[2], from_d[3]});
  CHECK(layer_error("select", each, {}, {{"on_true", a}, {"on_false", ramp({2, 4})}}) ==
        "select takes two layers of one shape; [3] and [4] differ");
  CHECK(layer_error("select", ramp({2, 2}), {}, {{"on_true", a}, {"on_false", b}}) ==
        "select takes a condition of the shape [3], or with axes of one number; the source is [2]");
  CHECK(names(scope).empty());
}

TEST_CASE("layers: select passes gradients to the layer that was taken, and none to its condition") {
  const HTensor x = ramp({2, 3}), mask = floats({2, 3}, {1, -1, 1, -1, 1, -1});
  TestScope scope;
  const auto result = [&](const HTensor& in, const HTensor& condition) {
    return layer("select", scope, condition, {}, {{"on_true", in * in}, {"on_false", exp(in)}});
  };
  const Ran ran = run(
      x, [&](const HTensor& in) { return result(in, mask); }, true);
  for (size_t i = 0; i < 6; ++i) {
    const auto total = [&](float step) {
      Floats moved = numbers(x);
      moved[i] += step;
      double sum = 0;
      for (float v : numbers(run(floats({2, 3}, moved), [&](const HTensor& in) { return result(in, mask); }).y))
        sum += v;
      return sum;
    };
    INFO("element " << i);
    CHECK(numbers(ran.dx)[i] == Approx((total(1e-2f) - total(-1e-2f)) / 2e-2).epsilon(0.01).margin(1e-3));
  }
  const Ran of_condition = run(
      x,
      [&](const HTensor& in) {
        return layer("select", scope, in, {}, {{"on_true", mask}, {"on_false", in}});
      },
      true);
  for (size_t i = 0; i < 6; ++i) CHECK(numbers(of_condition.dx)[i] == (numbers(x)[i] > 0 ? 0 : 1));
}

TEST_CASE("layers: every one with parameters has its gradient") {
  const auto derivative = [](const char* name, const HTensor& x, const Texts& texts, uint32_t leading = 1) {
    TestScope scope;
    scope.leading_axes = leading;
    const auto total = [&](const HTensor& at) {
      double sum = 0;
      for (float v : numbers(ran_layer(name, scope, at, texts))) sum += static_cast<double>(v) * v;
      return sum;
    };
    const Ran ran = run(
        x,
        [&](const HTensor& in) {
          const HTensor y = layer(name, scope, in, texts);
          return y * y;
        },
        true);
    for (size_t i : {size_t{0}, static_cast<size_t>(x.size()) / 2}) {
      Floats up = numbers(x), down = up;
      up[i] += 1e-2f;
      down[i] -= 1e-2f;
      INFO(name << " element " << i);
      CHECK(numbers(ran.dx)[i] ==
            Approx((total(floats(x.shape(), up)) - total(floats(x.shape(), down))) / 2e-2).epsilon(0.02).margin(2e-3));
    }
  };
  derivative("affine", ramp({2, 5}), {{"width", "3"}});
  derivative("conv", ramp({1, 2, 4, 4}), {{"channels", "3"}});
  derivative("norm", ramp({2, 6}), {});
  derivative("norm", ramp({2, 6}), {{"kind", "rms"}});
  derivative("norm", ramp({2, 6, 3}), {{"kind", "group"}, {"groups", "3"}});
  derivative("prelu", ramp({2, 5}), {});
  derivative("glu", ramp({2, 6}), {});
  derivative("lstm", ramp({2, 4, 3}), {{"width", "5"}}, 2);
  derivative("gru", ramp({2, 4, 3}), {{"width", "5"}, {"last", "true"}}, 2);
  derivative("attention", ramp({1, 3, 4}, 0.2f), {{"causal", "true"}, {"heads", "2"}, {"rope", "true"}}, 2);
}
