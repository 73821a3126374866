// Names that authors try first: functions of ops.hpp and methods of HTensor.
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/plugins/traced.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

const float kNan = std::nanf("");

}  // namespace

TEST_CASE("names: x * sigmoid(x), traced with its gradient") {
  const Ran ran = run(
      floats({3}, {-1, 0, 2}), [](const HTensor& x) { return x * sigmoid(x); }, true);
  CHECK(ran.count(Op::host_call) == 0);
  const auto s = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (int i = 0; i < 3; ++i) {
    const double x = std::vector<double>{-1, 0, 2}[static_cast<size_t>(i)];
    CHECK(numbers(ran.y)[static_cast<size_t>(i)] == Approx(x * s(x)).margin(1e-6));
    CHECK(numbers(ran.dx)[static_cast<size_t>(i)] == Approx(s(x) + x * s(x) * (1 - s(x))).margin(1e-6));
  }
}

TEST_CASE("names: activations as functions are the functionals") {
  const HTensor x = floats({2, 2}, {-2, -0.5f, 0.25f, 3});
  const auto same = [](const HTensor& a, const HTensor& b) { return numbers(a) == numbers(b); };
  CHECK(numbers(relu(x)) == Floats{0, 0, 0.25f, 3});
  CHECK(numbers(leaky_relu(x, 0.5)) == Floats{-1, -0.25f, 0.25f, 3});
  CHECK(numbers(leaky_relu(x))[0] == Approx(-0.02));
  CHECK(same(silu(x), call1("silu", {x})));
  CHECK(same(gelu(x), call1("gelu", {x})));
  CHECK(same(gelu(x, "tanh"), call1("gelu", {x}, Attributes().set("approximate", "tanh"))));
  CHECK(same(elu(x, 2), call1("elu", {x}, Attributes().set("alpha", 2.0))));
  CHECK(same(softplus(x), call1("softplus", {x})));
  CHECK(same(sigmoid(x), logistic(x)));
}

TEST_CASE("names: where takes tensors and numbers") {
  const HTensor x = floats({3}, {-1, 0, 2});
  CHECK(numbers(where(less(x, 0.5), x, 9.0)) == Floats{-1, 0, 9});
  CHECK(numbers(where(less(x, 0.5), 7.0, x)) == Floats{7, 7, 2});
  CHECK(numbers(where(less(x, 0.5), x, neg(x))) == Floats{-1, 0, -2});
}

TEST_CASE("names: clamp with both bounds, one and none") {
  const HTensor x = floats({5}, {-3, -1, 0.5f, 1, 3});
  CHECK(numbers(clamp(x, -1, 1)) == Floats{-1, -1, 0.5f, 1, 1});
  CHECK(numbers(clamp(x, std::nullopt, 1.0)) == Floats{-3, -1, 0.5f, 1, 1});
  CHECK(numbers(clamp(x, 0.0, std::nullopt)) == Floats{0, 0, 0.5f, 1, 3});
  CHECK(numbers(clamp(x, std::nullopt, std::nullopt)) == numbers(x));
  CHECK(numbers(clamp(x, 2.0, 1.0)) == Floats{1, 1, 1, 1, 1});
  CHECK(numbers(clamp(x, HTensor(), floats({5}, {9, -2, 0, 1, 2}))) == Floats{-3, -2, 0, 1, 2});
  CHECK(numbers(clamp(floats({2, 2}, {1, 2, 3, 4}), floats({2}, {2, 0}), HTensor())) == Floats{2, 2, 3, 4});
  CHECK(std::isnan(numbers(clamp(floats({1}, {kNan}), -1, 1))[0]));
  const HTensor whole = HTensor::from<int32_t>({3}, {-5, 0, 5});
  CHECK(clamp(whole, -1, 1).data<int32_t>()[0] == -1);
}

// Like PyTorch's clamp, the gradient passes at the bounds, too.
TEST_CASE("names: the gradient of clamp is 1 from bound to bound") {
  const Ran ran = run(
      floats({5}, {-3, -1, 0.5f, 1, 3}), [](const HTensor& x) { return clamp(x, -1, 1); }, true);
  CHECK(numbers(ran.dx) == Floats{0, 1, 1, 1, 0});
  const Ran bound = run(
      floats({5}, {-3, -1, 0.5f, 1, 3}),
      [](const HTensor& x) {
        return clamp(floats({5}, {0, 0, 0, 2, 4}), HTensor(), x);
      },
      true);
  CHECK(numbers(bound.dx) == Floats{1, 1, 0, 1, 1});
}

TEST_CASE("names: methods equal the functions") {
  const HTensor x = floats({2, 2}, {1, 2, 3, 4}), y = floats({2}, {10, 20});
  CHECK(numbers(x.add(y)) == Floats{11, 22, 13, 24});
  CHECK(numbers(x.sub(1).mul(2).div(y)) == Floats{0, 0.1f, 0.4f, 0.3f});
  CHECK(numbers(x.add(y).clamp({}, 22)) == Floats{11, 22, 13, 22});
  CHECK(numbers(x.matmul(x)) == Floats{7, 10, 15, 22});
  CHECK(numbers(x.sub(2.5).relu()) == Floats{0, 0, 0.5f, 1.5f});
  CHECK(numbers(x.neg().abs().pow(2).sqrt()) == numbers(x));
  CHECK(numbers(x.maximum(2).minimum(3)) == Floats{2, 2, 3, 3});
  CHECK(numbers(x.reshape({4})) == numbers(x));
  CHECK(x.reshape({4, 1}).shape() == Shape{4, 1});
  CHECK(numbers(x.transpose({1, 0})) == Floats{1, 3, 2, 4});
  CHECK(x.cast(DType::I32).data<int32_t>()[3] == 4);
  CHECK(numbers(y.broadcast({2, 2})) == Floats{10, 20, 10, 20});
  CHECK(numbers(x.reduce_sum({1})) == Floats{3, 7});
  CHECK(numbers(x.reduce_mean({0}, true)) == Floats{2, 3});
  CHECK(numbers(x.reduce_max({0, 1})) == Floats{4});
  CHECK(numbers(x.log().exp())[3] == Approx(4));
  CHECK(numbers(x.softmax())[0] == Approx(1 / (1 + std::exp(1.0))));
  const auto same = [](const HTensor& a, const HTensor& b) { return numbers(a) == numbers(b); };
  CHECK((same(x.sigmoid(), sigmoid(x)) && same(x.silu(), silu(x)) && same(x.gelu(), gelu(x)) &&
         same(x.tanh(), harmonics::tanh(x))));
  CHECK(error_of([&] { x.add(floats({3}, {1, 2, 3})); }).rfind("add: shapes [2, 2] and [3]", 0) == 0);
}
