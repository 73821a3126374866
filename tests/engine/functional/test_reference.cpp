// Edge cases of the functionals: kinks, masks, labels, windows at the border, hand-computed optimizer steps.
#include <catch2/catch.hpp>

#include <cmath>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr float kInf = INFINITY;

std::vector<float> floats(const HTensor& x) { return {x.data<float>(), x.data<float>() + x.size()}; }
std::vector<int32_t> ints(const HTensor& x) { return {x.data<int32_t>(), x.data<int32_t>() + x.size()}; }
HTensor row(const std::vector<float>& values) { return HTensor::from({static_cast<int64_t>(values.size())}, values); }

// Returns a functional's own gradient for one float input at these values, for dy = 1.
std::vector<float> derivative(const char* name, const std::vector<float>& at, const AttributeMap& attributes = {}) {
  const HTensor x = row(at);
  const Values in{x}, out = apply(name, attributes, in), dy{full(DType::F32, x.shape(), 1)};
  return floats(FunctionalTable::global().find(name)->gradient(attributes, in, out, dy)[0]);
}

std::string error_of(const char* name, const AttributeMap& attributes, const Values& in, ErrorKind kind) {
  try {
    apply(name, attributes, in);
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("activations: derivative at zero as in PyTorch") {
  CHECK(derivative("relu", {-1, 0, 1}) == std::vector<float>{0, 0, 1});
  CHECK(derivative("leaky_relu", {-1, 0, 1}, AttributeMap().set("slope", 0.25)) == std::vector<float>{0.25, 0.25, 1});
  CHECK(derivative("elu", {0, 1}, AttributeMap().set("alpha", 0.5)) == std::vector<float>{0.5, 1});
}

TEST_CASE("activations stay finite far from zero") {
  for (const char* name : {"gelu", "silu", "elu", "softplus"}) {
    INFO(name);
    const std::vector<float> y = floats(call1(name, {row({-1e4f, -200, 200, 1e4f})}));
    CHECK(std::abs(y[0]) <= 1);
    CHECK(std::abs(y[1]) <= 1);
    CHECK(y[2] == 200);
    CHECK(y[3] == 1e4f);
    const std::vector<float> d = derivative(name, {-1e4f, -200, 200, 1e4f});
    CHECK(d == std::vector<float>{0, 0, 1, 1});
  }
}

TEST_CASE("softmax: no overflow, masked scores are ignored") {
  CHECK(floats(softmax(row({1000, 1000, -kInf}))) == std::vector<float>{0.5, 0.5, 0});
  CHECK(floats(log_softmax(row({1e4f, -1e4f}))) == std::vector<float>{0, -2e4f});
}

TEST_CASE("softmax_cross_entropy: a label outside the classes gives infinity") {
  const HTensor logits = HTensor::from<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const HTensor labels = HTensor::from<int32_t>({3}, {1, 2, -1});
  const std::vector<float> loss = floats(call("softmax_cross_entropy", {logits, labels})[0]);
  CHECK(loss[0] == Approx(std::log1p(std::exp(-1.0))));
  CHECK(loss[1] == kInf);
  CHECK(loss[2] == kInf);
}

TEST_CASE("cross entropy on u8 labels counts past 255 classes") {
  const HTensor logits(DType::F32, {1, 300});
  const HTensor labels = HTensor::from<uint8_t>({1}, {44});
  CHECK(floats(call("softmax_cross_entropy", {logits, labels})[0])[0] == Approx(std::log(300.0)));
  const HTensor hot = call1("one_hot", {labels}, Attributes().set("classes", 300));
  CHECK(floats(reduce_sum(hot, {0, 1}))[0] == 1);
}

TEST_CASE("sigmoid cross entropy is exact for large logits") {
  const HTensor x = row({1e4f, -1e4f, 1e4f}), t = row({1, 1, 0});
  CHECK(floats(call1("sigmoid_cross_entropy", {x, t})) == std::vector<float>{0, 1e4f, 1e4f});
}

TEST_CASE("max_pool keeps the first of equals and never chooses padding") {
  const Attributes window = Attributes()
                                .set("kernel", std::vector<int64_t>{2, 2})
                                .set("strides", std::vector<int64_t>{2, 2})
                                .set("padding_low", std::vector<int64_t>{1, 1})
                                .set("padding_high", std::vector<int64_t>{1, 1});
  const HTensor x = HTensor::from<float>({1, 1, 2, 2}, {-kInf, 3, 3, 3});
  const auto pooled = call("max_pool", {x}, window);
  CHECK(floats(pooled[0]) == std::vector<float>{-kInf, 3, 3, 3});
  CHECK(ints(pooled[1]) == std::vector<int32_t>{0, 1, 2, 3});
  const HTensor flat = HTensor::from<float>({1, 1, 2, 3}, {5, 5, 1, 5, 5, 1});
  const auto first = call("max_pool", {flat}, Attributes().set("kernel", std::vector<int64_t>{2, 2}));
  CHECK(ints(first[1]) == std::vector<int32_t>{0, 1});
}

TEST_CASE("max_pool_grad adds where windows overlap, plane by plane") {
  const HTensor indices = HTensor::from<int32_t>({1, 2, 1, 2}, {1, 1, 0, 2});
  const HTensor dy = HTensor::from<float>({1, 2, 1, 2}, {1, 2, 3, 4});
  const HTensor dx = call1("max_pool_grad", {indices, dy}, Attributes().set("input_shape", Shape{1, 2, 1, 3}));
  CHECK(floats(dx) == std::vector<float>{0, 3, 0, 3, 0, 4});
}

TEST_CASE("avg_pool divides by what it averaged") {
  Attributes window = Attributes().set("kernel", std::vector<int64_t>{2}).set("padding_low", std::vector<int64_t>{1});
  const HTensor x = HTensor::from<float>({1, 1, 2}, {2, 4});
  CHECK(floats(call1("avg_pool", {x}, window)) == std::vector<float>{2, 3});
  window.set("count_include_pad", true);
  CHECK(floats(call1("avg_pool", {x}, window)) == std::vector<float>{1, 3});
}

TEST_CASE("a query that sees no key attends to nothing") {
  const HTensor q = full(DType::F32, {1, 1, 3, 2}, 1), k = full(DType::F32, {1, 1, 2, 2}, 1);
  const HTensor v = HTensor::from<float>({1, 1, 2, 2}, {1, 2, 3, 4});
  const AttributeMap causal = AttributeMap().set("causal", true);
  const Values in{q, k, v}, out = apply("attention", causal, in);
  CHECK(floats(out[0]) == std::vector<float>{0, 0, 1, 2, 2, 3});
  CHECK(floats(out[1])[0] == -kInf);
  const Values dout{full(DType::F32, {1, 1, 3, 2}, 1), HTensor()};
  for (const HTensor& d : FunctionalTable::global().find("attention")->gradient(causal, in, out, dout))
    for (float number : floats(d)) CHECK(std::isfinite(number));
}

TEST_CASE("rope: the inverse restores the input") {
  const HTensor x = HTensor::from<float>({1, 1, 1, 4}, {1, 2, 3, 4});
  const Attributes at = Attributes().set("offset", 5);
  const HTensor y = call1("rope", {x}, at);
  CHECK(floats(y)[0] == Approx(1 * std::cos(5.0) - 3 * std::sin(5.0)));
  CHECK(floats(y)[2] == Approx(3 * std::cos(5.0) + 1 * std::sin(5.0)));
  const std::vector<float> back = floats(call1("rope", {y}, Attributes().set("offset", 5).set("inverse", true)));
  for (int i = 0; i < 4; ++i) CHECK(back[static_cast<size_t>(i)] == Approx(i + 1));
}

TEST_CASE("dropout keeps the expectation") {
  const HTensor y = call1("dropout", {row({1, 2, 3, 4}), row({0.1f, 0.25f, 0.5f, 0})}, Attributes().set("rate", 0.25));
  const std::vector<float> found = floats(y);
  CHECK(found[0] == 0);
  CHECK(found[1] == Approx(2 / 0.75));
  CHECK(found[2] == Approx(3 / 0.75));
  CHECK(found[3] == 0);
}

TEST_CASE("embedding_grad adds rows that were read twice") {
  const HTensor ids = HTensor::from<int32_t>({3}, {2, 0, 2});
  const HTensor dy = HTensor::from<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(floats(call1("embedding_grad", {ids, dy}, Attributes().set("rows", 3))) ==
        std::vector<float>{3, 4, 0, 0, 6, 8});
}

TEST_CASE("the first step of Adam moves by the learning rate") {
  const HTensor w = row({1, 1}), g = row({0.5f, -1e-3f}), zero = row({0, 0});
  for (const char* name : {"adam", "adamw"}) {
    const auto next = call(name, {w, g, zero, zero, HTensor::scalar(0.125f), HTensor::from<int64_t>({}, {1})});
    CHECK(floats(next[0])[0] == Approx(0.875));
    CHECK(floats(next[0])[1] == Approx(1.125).epsilon(1e-4));
    CHECK(floats(next[1])[0] == Approx(0.05));
    CHECK(floats(next[2])[0] == Approx(0.00025));
  }
}

TEST_CASE("only adamw decays apart from the gradient") {
  const HTensor w = row({2}), zero = row({0}), lr = HTensor::scalar(0.125f), step = HTensor::from<int64_t>({}, {1});
  const Attributes decay = Attributes().set("weight_decay", 0.5);
  CHECK(floats(call("adamw", {w, zero, zero, zero, lr, step}, decay)[0])[0] == Approx(2 * (1 - 0.125 * 0.5)));
  CHECK(floats(call("adam", {w, zero, zero, zero, lr, step}, decay)[0])[0] == Approx(2 - 0.125));
  CHECK(floats(call("sgd", {w, zero, lr}, decay)[0])[0] == Approx(2 - 0.125 * 0.5 * 2));
}

TEST_CASE("functionals: shape and type errors") {
  const HTensor x(DType::F32, {3, 4}), weight(DType::F32, {5, 6}), image(DType::F32, {1, 3, 8, 8});
  const Shape kernel{4, 2, 3, 3};
  CHECK(error_of("linear", {}, {x, weight}, ErrorKind::Shape) ==
        "linear: x f32[3, 4] and weight f32[5, 6] do not fit: x is [..., in], the weight [out, in]");
  CHECK(error_of("linear", {}, {x}, ErrorKind::Shape) == "linear: takes 2 to 3 inputs, got 1");
  CHECK(error_of("linear", AttributeMap().set("activation", std::string("silu")), {x, HTensor(DType::F32, {5, 4})},
                 ErrorKind::Type) == "linear: activation is \"silu\"; give one of relu, tanh, logistic, gelu");
  CHECK(error_of("softmax_cross_entropy", {}, {x, HTensor(DType::F32, {3})}, ErrorKind::Type) ==
        "softmax_cross_entropy: labels are class numbers of an integer type, not f32[3]");
  CHECK(error_of("softmax_cross_entropy", {}, {x, HTensor(DType::I64, {4})}, ErrorKind::Shape) ==
        "softmax_cross_entropy: logits f32[3, 4] and labels i64[4] do not fit: labels lack the last axis");
  CHECK(error_of("mse", {}, {x, weight}, ErrorKind::Shape) ==
        "mse: prediction f32[3, 4] and target f32[5, 6] differ in shape");
  CHECK(error_of("layer_norm", AttributeMap().set("norm_axes", int64_t{3}), {x, x, x}, ErrorKind::Shape) ==
        "layer_norm: norm_axes is 3, but x is f32[3, 4]; give 1 to 2");
  CHECK(error_of("rms_norm", {}, {x, HTensor(DType::F32, {3})}, ErrorKind::Shape) ==
        "rms_norm: gain f32[3] does not fit x [3, 4]: it needs shape [4]");
  CHECK(error_of("conv", {}, {image, HTensor(DType::F32, kernel)}, ErrorKind::Shape) ==
        "conv: x [1, 3, 8, 8] with 1 group does not fit weight [4, 2, 3, 3]: C must be the weight's second axis times "
        "groups, and groups must divide its first");
  CHECK(error_of("conv", AttributeMap().set("strides", std::vector<int64_t>{2}),
                 {image, HTensor(DType::F32, {4, 3, 3, 3})},
                 ErrorKind::Shape) == "conv: strides has 1 number; give one for each of the 2 spatial axes");
  CHECK(
      error_of("max_pool",
               AttributeMap().set("kernel", std::vector<int64_t>{2, 2}).set("padding_low", std::vector<int64_t>{2, 0}),
               {image}, ErrorKind::Shape) ==
      "max_pool: padding of axis 0 is as large as the window, so that a window could cover padding only");
  CHECK(error_of("dropout", AttributeMap().set("rate", 1.0), {x, x}, ErrorKind::Type) ==
        "dropout: rate is 1.0; give a value at least 0 and below 1");
  CHECK(error_of("rope", {}, {HTensor(DType::F32, {2, 3})}, ErrorKind::Shape) ==
        "rope: x is [..., positions, width] with an even width, not f32[2, 3]");
  CHECK(error_of("sgd", AttributeMap().set("momentum", 0.9), {x, x, HTensor::scalar(1)}, ErrorKind::Shape) ==
        "sgd: momentum 0.9 needs the velocity as third input");
}
