#include <catch2/catch.hpp>

#include <cmath>

#include "tests/plugins/catalogue.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

const std::string kNone, kSoftmax = "harmonics.activations/softmax", kLogSoftmax = "harmonics.activations/log_softmax",
                         kSigmoid = "harmonics.activations/sigmoid", kRelu = "harmonics.activations/relu";
const HTensor kLogits = floats({2, 3}, {1, 2, -1, 0.5f, -3, 4});
const HTensor kLabels = HTensor::from<int32_t>({2}, {1, 0});

HTensor ran_loss(const char* name, const std::string& before, const HTensor& logits, const HTensor& target,
                 const Texts& texts = {}) {
  return run(logits, [&](const HTensor& x) { return loss(name, before, x, x, target, texts); }).y;
}
std::string loss_error(const char* name, const std::string& before, const HTensor& logits, const HTensor& target,
                       const Texts& texts = {}) {
  return error_of([&] { ran_loss(name, before, logits, target, texts); });
}

float negative_log_softmax(const Floats& row, size_t label) {
  double sum = 0;
  for (float v : row) sum += std::exp(static_cast<double>(v));
  return static_cast<float>(std::log(sum) - row[label]);
}
float binary(float z, float t) { return std::max(z, 0.0f) - z * t + std::log1p(std::exp(-std::abs(z))); }

}  // namespace

TEST_CASE("losses: cross_entropy after softmax or no activation is softmax cross entropy on logits") {
  const Floats expected{negative_log_softmax({1, 2, -1}, 1), negative_log_softmax({0.5f, -3, 4}, 0)};
  for (const std::string& before : {kNone, kSoftmax, std::string("harmonics.activations/identity")})
    check_close(ran_loss("cross_entropy", before, kLogits, kLabels), expected);
  const HTensor hot = floats({2, 3}, {0, 1, 0, 1, 0, 0});
  check_close(ran_loss("cross_entropy", kSoftmax, kLogits, hot), expected);
  const HTensor soft = floats({2, 3}, {0.5f, 0.5f, 0, 1, 0, 0});
  check_close(ran_loss("cross_entropy", kNone, kLogits, soft),
              {0.5f * (expected[0] + negative_log_softmax({1, 2, -1}, 0)), expected[1]});
}

TEST_CASE("losses: cross_entropy after sigmoid is binary for each output") {
  Floats expected;
  const Floats z = numbers(kLogits), hot{0, 1, 0, 1, 0, 0};
  for (size_t i = 0; i < z.size(); ++i) expected.push_back(binary(z[i], hot[i]));
  check_close(ran_loss("cross_entropy", kSigmoid, kLogits, kLabels), expected);
  check_close(ran_loss("cross_entropy", kSigmoid, kLogits, floats({2, 3}, hot)), expected);
  check_close(ran_loss("cross_entropy", kSigmoid, floats({1, 1}, {-200}), floats({1, 1}, {1})), {200});  // no overflow
}

TEST_CASE("losses: cross_entropy after other activations gives an error with a remedy") {
  CHECK(loss_error("cross_entropy", kRelu, kLogits, kLabels) ==
        "loss 'cross_entropy' of plugin 'harmonics.losses': cross_entropy does not fit the last function of the arrow, "
        "'harmonics.activations/relu'\n"
        "end the arrow in softmax (one of many classes), sigmoid (each output independently) or in no activation");
  CHECK(loss_error("cross_entropy", "mine/sigmoid", kLogits, kLabels).find("'mine/sigmoid'") != std::string::npos);
  CHECK(loss_error("next_token", kSigmoid, kLogits, kLabels).find("end the arrow in softmax or in no activation") !=
        std::string::npos);
}

TEST_CASE("losses: next_token compares each position with the symbol that follows") {
  const HTensor logits = floats({1, 3, 2}, {1, 2, 3, -1, 9, 9});
  const HTensor text = HTensor::from<int32_t>({1, 3}, {0, 1, 0});
  const HTensor y = ran_loss("next_token", kNone, logits, text);
  CHECK(y.shape() == Shape{1, 2});
  check_close(y, {negative_log_softmax({1, 2}, 1), negative_log_softmax({3, -1}, 0)});
  CHECK(loss_error("next_token", kNone, kLogits, kLabels)
            .find("next_token compares logits [batch, positions, symbols] with symbols "
                  "[batch, positions]; got [2, 3] and [2]") != std::string::npos);
  CHECK(loss_error("next_token", kNone, floats({1, 1, 2}, {1, 2}), HTensor::from<int32_t>({1, 1}, {0}))
            .find("at least two positions") != std::string::npos);
}

TEST_CASE("losses: binary_cross_entropy takes probabilities, or logits after sigmoid") {
  const HTensor p = floats({1, 4}, {0.25f, 0.75f, 0, 1}), t = floats({1, 4}, {0, 1, 1, 0});
  const float quarter = -std::log(0.75f);
  check_close(ran_loss("binary_cross_entropy", kNone, p, t), {quarter, quarter, 100, 100});
  const HTensor z = floats({1, 2}, {-300, 2});
  check_close(ran_loss("binary_cross_entropy", kSigmoid, z, floats({1, 2}, {1, 0})), {300, binary(2, 0)});
}

TEST_CASE("losses: distances are computed element by element") {
  const HTensor p = floats({1, 3}, {0, 2, -3}), t = floats({1, 3}, {0.5f, 0, 0});
  check_close(ran_loss("mse", kRelu, p, t), {0.25f, 4, 9});
  check_close(ran_loss("mae", kNone, p, t), {0.5f, 2, 3});
  check_close(ran_loss("huber", kNone, p, t), {0.125f, 1.5f, 2.5f});
  check_close(ran_loss("huber", kNone, p, t, {{"delta", "2"}}), {0.125f, 2, 4});
  check_close(ran_loss("smooth_l1", kNone, p, t, {{"beta", "2"}}), {0.0625f, 1, 2});
  CHECK(loss_error("smooth_l1", kNone, p, t, {{"beta", "0"}}) ==
        "'beta' of loss 'smooth_l1' is '0'\ngive a value above 0");
  CHECK(loss_error("huber", kNone, p, t, {{"delta", "0"}}) == "'delta' of loss 'huber' is '0'\ngive a value above 0");
}

TEST_CASE("losses: smoothing and ignored positions") {
  const float first = negative_log_softmax({1, 2, -1}, 1);
  const float all = (negative_log_softmax({1, 2, -1}, 0) + first + negative_log_softmax({1, 2, -1}, 2)) / 3;
  const HTensor one = floats({1, 3}, {1, 2, -1}), label = HTensor::from<int32_t>({1}, {1});
  check_close(ran_loss("cross_entropy", kNone, one, label, {{"label_smoothing", "0.25"}}),
              {0.75f * first + 0.25f * all});
  check_close(ran_loss("cross_entropy", kNone, one, floats({1, 3}, {0, 1, 0}), {{"label_smoothing", "0.25"}}),
              {0.75f * first + 0.25f * all});
  const HTensor absent = HTensor::from<int32_t>({2}, {1, -100}), none = HTensor::from<int32_t>({2}, {-100, -100});
  const Texts ignore{{"ignore_index", "-100"}};
  // The engine takes the mean over both positions; it equals the loss of the counted one.
  for (const char* name : {"cross_entropy", "nll"})
    check_close(ran_loss(name, kLogSoftmax, kLogits, absent, ignore), {2 * first, 0});
  check_close(ran_loss("cross_entropy", kSoftmax, kLogits, none, ignore), {0, 0});
  check_close(ran_loss("cross_entropy", kSigmoid, kLogits, absent, ignore),
              {2 * (binary(1, 0) + binary(2, 1) + binary(-1, 0)), 0});
  CHECK(loss_error("cross_entropy", kNone, kLogits, floats({2, 3}, Floats(6)), ignore)
            .find("ignore_index is a class number") != std::string::npos);
  CHECK(loss_error("cross_entropy", kSigmoid, kLogits, kLabels, {{"label_smoothing", "0.1"}})
            .find("outputs after sigmoid are independent") != std::string::npos);
  CHECK(loss_error("cross_entropy", kNone, kLogits, kLabels, {{"label_smoothing", "1.5"}}) ==
        "'label_smoothing' of loss 'cross_entropy' is '1.5'\ngive a value from 0 to 1");
}

TEST_CASE("losses: nll takes log-probabilities") {
  check_close(ran_loss("nll", kNone, kLogits, kLabels), {-2, -0.5f});
  check_close(ran_loss("nll", kLogSoftmax, kLogits, kLabels),
              {negative_log_softmax({1, 2, -1}, 1), negative_log_softmax({0.5f, -3, 4}, 0)});
  CHECK(loss_error("nll", kSoftmax, kLogits, kLabels).find("end the arrow in log_softmax, or write cross_entropy") !=
        std::string::npos);
  CHECK(loss_error("nll", kNone, kLogits, kLogits).find("kl_div compares with a distribution") != std::string::npos);
  const HTensor outside = HTensor::from<int32_t>({2}, {1, 3});
  CHECK(std::isinf(numbers(ran_loss("nll", kNone, kLogits, outside))[1]));
}

TEST_CASE("losses: hinge requires a margin, for signs or for classes") {
  const HTensor p = floats({1, 3}, {0.5f, 2, -3}), t = floats({1, 3}, {1, -1, -1});
  check_close(ran_loss("hinge", kNone, p, t), {0.5f, 3, 0});
  check_close(ran_loss("hinge", kNone, p, t, {{"power", "2"}, {"margin", "2"}}), {2.25f, 16, 0});
  check_close(ran_loss("hinge", kNone, p, HTensor::from<int32_t>({1}, {0})), {2.5f / 3});
  check_close(ran_loss("hinge", kNone, p, HTensor::from<int32_t>({1}, {0}), {{"power", "2"}}), {6.25f / 3});
  CHECK(loss_error("hinge", kNone, p, t, {{"power", "3"}}) ==
        "'power' of loss 'hinge' is '3'\ngive a value from 1 to 2");
}

TEST_CASE("losses: kl_div compares distributions") {
  const HTensor target = floats({1, 2}, {0.25f, 0.75f}), logits = floats({1, 2}, {0, 0});
  const double log_half = std::log(0.5);
  const Floats expected{static_cast<float>(0.25 * (std::log(0.25) - log_half)),
                        static_cast<float>(0.75 * (std::log(0.75) - log_half))};
  check_close(ran_loss("kl_div", kSoftmax, logits, target), expected);
  check_close(ran_loss("kl_div", kLogSoftmax, logits, target), expected);
  check_close(ran_loss("kl_div", kNone, floats({1, 2}, {-1, -2}), floats({1, 2}, {0, 1})), {0, 2});
  CHECK(loss_error("kl_div", kSigmoid, logits, target).find("end the arrow in softmax or log_softmax") !=
        std::string::npos);
}

TEST_CASE("losses: binary_cross_entropy takes the labels of two classes for one output") {
  const HTensor z = floats({2, 1}, {-1, 2}), labels = HTensor::from<int32_t>({2}, {1, 0});
  check_close(ran_loss("binary_cross_entropy", kSigmoid, z, labels), {binary(-1, 1), binary(2, 0)});
  check_close(ran_loss("binary_cross_entropy", kNone, floats({2, 1}, {0.25f, 0.5f}), labels),
              {-std::log(0.25f), -std::log(0.5f)});
}

TEST_CASE("losses: the gradient of a fused loss equals that of its definition") {
  const Ran ran = run(
      kLogits, [](const HTensor& x) { return loss("cross_entropy", kSoftmax, x, x, kLabels); }, true);
  Floats expected;
  for (int r = 0; r < 2; ++r) {
    double sum = 0;
    for (int c = 0; c < 3; ++c) sum += std::exp(static_cast<double>(numbers(kLogits)[static_cast<size_t>(3 * r + c)]));
    for (int c = 0; c < 3; ++c)
      expected.push_back(static_cast<float>(
          std::exp(static_cast<double>(numbers(kLogits)[static_cast<size_t>(3 * r + c)])) / sum - (c == (r ? 0 : 1))));
  }
  check_close(ran.dx, expected);
}

TEST_CASE("losses: binary_cross_entropy with probabilities of 0 and 1 has PyTorch's bounded gradient") {
  const Floats p{0, 1, 0, 1, 1e-30f, 1 - 0x1p-24f, 0.25f}, t{0, 1, 1, 0, 1, 0.5f, 1};
  const Ran ran = run(
      floats({1, 7}, p),
      [&](const HTensor& x) {
        return loss("binary_cross_entropy", kRelu, x, x, floats({1, 7}, t));
      },
      true);
  for (size_t i = 0; i < p.size(); ++i) {
    INFO(p[i] << " for " << t[i]);
    const double bound = std::max(static_cast<double>(p[i]) * (1 - static_cast<double>(p[i])), 1e-12);
    CHECK(numbers(ran.dx)[i] == Approx((static_cast<double>(p[i]) - t[i]) / bound).epsilon(1e-6));
  }
}

// Loss and gradient of saturated outputs. A formula that multiplies 0 by infinity gives NaN.
TEST_CASE("losses: saturated outputs have finite losses and gradients") {
  struct Case {
    const char *name, *activation;  // name of the activation that ends the arrow
    bool classes;
    Texts texts;
  };
  const Case cases[] = {{"cross_entropy", "softmax", true, {}},
                        {"cross_entropy", "softmax", false, {}},
                        {"cross_entropy", "", true, {{"label_smoothing", "0.25"}}},
                        {"cross_entropy", "log_softmax", true, {{"ignore_index", "1"}}},
                        {"cross_entropy", "sigmoid", true, {}},
                        {"binary_cross_entropy", "softmax", true, {}},
                        {"binary_cross_entropy", "softmax", false, {}},
                        {"binary_cross_entropy", "sigmoid", false, {}},
                        {"binary_cross_entropy", "hardsigmoid", false, {}},
                        {"nll", "log_softmax", true, {}},
                        {"kl_div", "softmax", false, {}},
                        {"kl_div", "log_softmax", false, {}},
                        {"hinge", "", true, {{"power", "2"}}},
                        {"hinge", "tanh", false, {}},
                        {"mse", "softmax", false, {}},
                        {"mae", "softmax", false, {}},
                        {"huber", "sigmoid", false, {}}};
  const HTensor logits = floats({4, 2}, {17, -17, -120, 120, 1e4f, 1e4f, 3e8f, -3e8f});
  const HTensor labels = HTensor::from<int32_t>({4}, {0, 0, 1, 1}), hot = floats({4, 2}, {1, 0, 1, 0, 0, 1, 0, 1});
  for (const Case& c : cases) {
    INFO(c.name << " after " << c.activation << (c.classes ? ", classes" : ""));
    const std::string before = *c.activation ? std::string("harmonics.activations/") + c.activation : "";
    const Ran ran = run(
        logits,
        [&](const HTensor& x) {
          const HTensor y = *c.activation ? activation(c.activation, x) : x;
          return loss(c.name, before, x, y, c.classes ? labels : hot, c.texts);
        },
        true);
    for (const float v : numbers(ran.y)) CHECK(std::isfinite(v));
    for (const float v : numbers(ran.dx)) CHECK(std::isfinite(v));
  }
}

TEST_CASE("losses: a single class gives an error, since it teaches nothing") {
  const HTensor one = floats({2, 1}, {1, -1}), labels = HTensor::from<int32_t>({2}, {0, 0}),
                real = floats({2, 1}, {0.3f, 7});
  const std::string refused = " over one class trains nothing: its probability is always 1";
  CHECK(loss_error("cross_entropy", kNone, one, labels).find("cross_entropy" + refused) != std::string::npos);
  CHECK(loss_error("cross_entropy", kSoftmax, one, real).find("cross_entropy" + refused) != std::string::npos);
  CHECK(loss_error("cross_entropy", kSigmoid, one, labels).find("cross_entropy" + refused) != std::string::npos);
  CHECK(loss_error("nll", kLogSoftmax, one, labels).find("nll" + refused) != std::string::npos);
  CHECK(loss_error("kl_div", kSoftmax, one, real).find("kl_div" + refused) != std::string::npos);
  CHECK(loss_error("hinge", kNone, one, labels).find("hinge" + refused) != std::string::npos);
  // Independent outputs are accepted.
  check_close(ran_loss("cross_entropy", kSigmoid, one, floats({2, 1}, {1, 0})), {binary(1, 1), binary(-1, 0)});
}
