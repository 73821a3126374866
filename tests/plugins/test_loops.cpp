// Loops in plugins: scan in the public API.
#include <catch2/catch.hpp>

#include <cmath>
#include <mutex>

#include "tests/plugins/catalogue.hpp"
#include "tests/plugins/fixture.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

void load_loops() {
  static std::once_flag once;
  std::call_once(once, [] { load_plugin(fixture("loops")); });
}

struct Layer {
  TestScope scope;
  Ran ran;

  explicit Layer(const HTensor& x, bool backwards = false) {
    load_loops();
    scope.leading_axes = 2;
    // Parameters are constants, hence literals: x is the trace's only input.
    ran = run(
        x,
        [&](const HTensor& in) {
          return layer("my_recurrent", scope, in, {{"width", "3"}, {"backwards", backwards ? "true" : "false"}});
        },
        true);
  }
};

// Computes the layer in double, position by position.
Floats by_hand(const HTensor& x, TestScope& scope, bool backwards) {
  const int64_t batch = x.shape()[0], length = x.shape()[1], features = x.shape()[2], width = 3;
  const Floats in = numbers(x), w = numbers(scope.values.at("w")), u = numbers(scope.values.at("u")),
               b = numbers(scope.values.at("b"));
  Floats y(static_cast<size_t>(batch * length * width));
  for (int64_t n = 0; n < batch; ++n) {
    std::vector<double> h(static_cast<size_t>(width));
    for (int64_t t = 0; t < length; ++t) {
      const int64_t at = n * length + (backwards ? length - 1 - t : t);
      std::vector<double> next;
      for (int64_t i = 0; i < width; ++i) {
        double sum = b[static_cast<size_t>(i)];
        for (int64_t k = 0; k < features; ++k)
          sum += double{w[static_cast<size_t>(i * features + k)]} * double{in[static_cast<size_t>(at * features + k)]};
        for (int64_t k = 0; k < width; ++k)
          sum += double{u[static_cast<size_t>(i * width + k)]} * h[static_cast<size_t>(k)];
        next.push_back(std::tanh(sum));
      }
      h = next;
      for (int64_t i = 0; i < width; ++i)
        y[static_cast<size_t>(at * width + i)] = static_cast<float>(h[static_cast<size_t>(i)]);
    }
  }
  return y;
}

}  // namespace

TEST_CASE("loops: a plugin's recurrent layer, its values, its gradient, and one loop whatever the length") {
  for (const bool backwards : {false, true}) {
    const HTensor x = ramp({2, 5, 4});
    Layer layer(x, backwards);
    CHECK(layer.ran.count(Op::scan) == 2);  // the layer and its gradient
    check_close(layer.ran.y, by_hand(x, layer.scope, backwards));
    const HTensor longer = ramp({2, 50, 4});
    CHECK(Layer(longer, backwards).ran.program.nodes.size() == layer.ran.program.nodes.size());
    // Compares dx with differences of the sum of y.
    const Floats dx = numbers(layer.ran.dx);
    for (const size_t k : {size_t{0}, size_t{13}, size_t{39}}) {
      double sums[2] = {};
      for (const int side : {0, 1}) {
        HTensor moved = x;
        moved.mutable_data<float>()[k] += side ? 1e-2f : -1e-2f;
        for (const float y : by_hand(moved, layer.scope, backwards)) sums[side] += double{y};
      }
      CHECK(double{dx[k]} == Approx((sums[1] - sums[0]) / 2e-2).epsilon(1e-3).margin(1e-4));
    }
  }
}

TEST_CASE("loops: a plugin's loop without xs, traced and eager") {
  load_loops();
  const HTensor x = floats({3}, {1, 0.5f, -0.9f});
  Floats expected;
  for (const float v : numbers(x)) expected.push_back(std::pow(std::abs(v), 32.0f));
  check_close(run(x, [](const HTensor& in) { return activation("squares", in); }).y, expected);
  check_close(activation("squares", x), expected);
}

TEST_CASE("loops: errors of a plugin's loop, traced and eager") {
  load_loops();
  const HTensor x = floats({2}, {1, 2});
  const std::pair<const char*, const char*> cases[] = {
      {"loop_reads", "scan: the body reads the values of a tensor"},
      {"loop_gives_none", "scan: the body gives 0 results, fewer than carries = 1"},
      {"loop_gives_empty", "scan: the body returned an empty tensor"},
      {"loop_gives_many", "scan: the body gave 65 results; at most 64 are possible"},
      {"loop_gives_f64", "a carry keeps its type"},
      {"loop_throws", "no loops on Thursdays"},
      {"loop_without_length", "scan: without xs its length must be given"},
      {"loop_misspelt", "scan: there is no attribute 'lenght'; it has length and reverse"}};
  for (const auto& [name, text] : cases) {
    INFO(name);
    const std::string traced = error_of([&] { run(x, [&](const HTensor& in) { return activation(name, in); }); }),
                      eager = error_of([&] { activation(name, x); });
    INFO(traced);
    INFO(eager);
    CHECK(traced.find(text) != std::string::npos);
    CHECK(eager.find(text) != std::string::npos);
  }
}
