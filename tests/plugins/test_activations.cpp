#include <catch2/catch.hpp>

#include <cmath>

#include "tests/plugins/catalogue.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Row {
  const char* name;
  Texts arguments;
  double (*f)(double);
};
const Row kRows[] = {
    {"relu", {}, [](double x) { return std::max(x, 0.0); }},
    {"leaky_relu", {}, [](double x) { return x > 0 ? x : 0.01 * x; }},
    {"leaky_relu", {{"slope", "0.3"}}, [](double x) { return x > 0 ? x : 0.3 * x; }},
    {"sigmoid", {}, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", {}, [](double x) { return std::tanh(x); }},
    {"gelu", {}, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"gelu",
     {{"approximate", "tanh"}},
     [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
    {"silu", {}, [](double x) { return x / (1 + std::exp(-x)); }},
    {"elu", {}, [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"elu", {{"alpha", "2"}}, [](double x) { return x > 0 ? x : 2 * std::expm1(x); }},
    {"softplus", {}, [](double x) { return std::log1p(std::exp(x)); }},
    {"selu", {}, [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
    {"celu", {{"alpha", "2"}}, [](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); }},
    {"mish", {}, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {"relu6", {}, [](double x) { return std::min(std::max(x, 0.0), 6.0); }},
    {"hardtanh", {}, [](double x) { return std::min(std::max(x, -1.0), 1.0); }},
    {"hardtanh", {{"low", "-2"}, {"high", "0.5"}}, [](double x) { return std::min(std::max(x, -2.0), 0.5); }},
    {"hardsigmoid", {}, [](double x) { return std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
    {"hardswish", {}, [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
    {"softsign", {}, [](double x) { return x / (1 + std::abs(x)); }},
    {"logsigmoid", {}, [](double x) { return -std::log1p(std::exp(-x)); }},
    {"identity", {}, [](double x) { return x; }},
};

}  // namespace

TEST_CASE("activations: values and gradients match their definitions") {
  const Floats xs{-4, -1.5f, -0.3f, 0.2f, 1.2f, 3.5f};
  for (const Row& row : kRows) {
    INFO(row.name);
    const Ran ran = run(
        floats({2, 3}, xs), [&](const HTensor& x) { return activation(row.name, x, row.arguments); }, true);
    CHECK(ran.count(Op::host_call) == 0);
    for (size_t i = 0; i < xs.size(); ++i) {
      CHECK(numbers(ran.y)[i] == Approx(row.f(xs[i])).margin(1e-5));
      CHECK(numbers(ran.dx)[i] == Approx((row.f(xs[i] + 1e-4) - row.f(xs[i] - 1e-4)) / 2e-4).margin(1e-3));
    }
  }
}

TEST_CASE("activations: logarithms of probabilities do not overflow") {
  check_close(run(floats({1, 3}, {0, 1000, 0}), [](const HTensor& x) { return activation("log_softmax", x); }).y,
              {-1000, 0, -1000});
  check_close(run(floats({1, 2}, {-1000, 1000}), [](const HTensor& x) { return activation("logsigmoid", x); }).y,
              {-1000, 0});
  check_close(run(floats({1, 2}, {-1000, 1000}), [](const HTensor& x) { return activation("relu6", x); }).y, {0, 6});
}

TEST_CASE("activations: softmax gives probabilities along the last axis") {
  const Ran ran =
      run(floats({2, 3}, {0, 0, 0, 1000, 0, -1000}), [](const HTensor& x) { return activation("softmax", x); });
  check_close(ran.y, {1.f / 3, 1.f / 3, 1.f / 3, 1, 0, 0});
}

TEST_CASE("activations: an argument outside of its range is refused") {
  CHECK(error_of([] {
          run(ramp({2, 2}), [](const HTensor& x) { return activation("gelu", x, {{"approximate", "erf"}}); });
        }) == "'approximate' of activation 'gelu' is 'erf'\ngive one of none, tanh");
  const auto error = [](const char* name, const Texts& texts) {
    return error_of([&] { run(ramp({2, 2}), [&](const HTensor& x) { return activation(name, x, texts); }); });
  };
  CHECK(error("celu", {{"alpha", "0"}}) == "'alpha' of activation 'celu' is '0'\ngive a value above 0");
  CHECK(error("hardtanh", {{"low", "2"}}).find("low must be below high") != std::string::npos);
}
