#include <catch2/catch.hpp>

#include <cmath>

#include "tests/plugins/catalogue.hpp"

using namespace harmonics;
using namespace harmonics::testing;

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
    {"gelu", {{"approximate", "tanh"}}, [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
    {"silu", {}, [](double x) { return x / (1 + std::exp(-x)); }},
    {"elu", {}, [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"elu", {{"alpha", "2"}}, [](double x) { return x > 0 ? x : 2 * std::expm1(x); }},
    {"softplus", {}, [](double x) { return std::log1p(std::exp(x)); }},
    {"identity", {}, [](double x) { return x; }},
};

}  // namespace

TEST_CASE("activations mean what their names say, with their slopes") {
  const Floats xs{-4, -1.5f, -0.3f, 0.2f, 1, 3.5f};
  for (const Row& row : kRows) {
    INFO(row.name);
    const Ran ran = run(floats({2, 3}, xs), [&](const HTensor& x) { return activation(row.name, x, row.arguments); }, true);
    CHECK(ran.count(Op::host_call) == 0);
    for (size_t i = 0; i < xs.size(); ++i) {
      CHECK(numbers(ran.y)[i] == Approx(row.f(xs[i])).margin(1e-5));
      CHECK(numbers(ran.dx)[i] == Approx((row.f(xs[i] + 1e-4) - row.f(xs[i] - 1e-4)) / 2e-4).margin(1e-3));
    }
  }
}

TEST_CASE("softmax gives probabilities along the last axis") {
  const Ran ran = run(floats({2, 3}, {0, 0, 0, 1000, 0, -1000}), [](const HTensor& x) { return activation("softmax", x); });
  check_close(ran.y, {1.f / 3, 1.f / 3, 1.f / 3, 1, 0, 0});
}

TEST_CASE("an argument outside of its range is refused") {
  CHECK(error_of([] { run(ramp({2, 2}), [](const HTensor& x) { return activation("gelu", x, {{"approximate", "erf"}}); }); }) ==
        "activation 'gelu' of plugin 'harmonics.activations': approximate is \"erf\"; it can be \"none\" or \"tanh\"");
}
