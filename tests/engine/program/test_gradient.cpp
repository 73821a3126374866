#include <catch2/catch.hpp>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/interpret.hpp"
#include "tests/conformance/gradcheck.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using testing::check_gradient_of;
using testing::random_tensor;

namespace {

const TensorType kVector{DType::F64, {3}};

HTensor sum(const HTensor& x) { return reduce_sum(x, axes_from(x, 0)); }

// Returns d value / d inputs of a vector function at these values.
template <typename F>
std::vector<std::vector<double>> gradients_of(F value, const Values& at) {
  Tracer tracer("gradients");
  Values traced;
  std::map<std::string, HTensor> leaves;
  for (size_t i = 0; i < at.size(); ++i) {
    traced.push_back(tracer.input(std::to_string(i), type_of(at[i])));
    leaves[std::to_string(i)] = at[i];
  }
  const Values g = gradient(tracer, value(traced), traced);
  for (size_t i = 0; i < g.size(); ++i) tracer.output(std::to_string(i), g[i]);
  const Program program = tracer.take();
  std::vector<std::vector<double>> numbers;
  for (const HTensor& r : interpret(program, leaves))
    numbers.emplace_back(r.data<double>(), r.data<double>() + r.size());
  return numbers;
}

using Rows = std::vector<std::vector<double>>;

// A host function that squares, with or without a gradient.
class HostSquare : public HostFunction {
 public:
  explicit HostSquare(bool differentiable) : differentiable_(differentiable) {}
  std::string name() const override { return "activation 'my_square' (plugin /tmp/libmine.so)"; }
  std::vector<HTensor> run(const std::vector<HTensor>& in) const override { return {in[0] * in[0]}; }
  std::vector<HTensor> gradient(const std::vector<HTensor>& in, const std::vector<HTensor>&,
                                const std::vector<HTensor>& dy) const override {
    if (!differentiable_) return {};
    return {in[0] * dy[0] * 2.0};
  }

 private:
  bool differentiable_;
};

HTensor host_square(Tracer& tracer, const HTensor& x, bool differentiable) {
  Node n{};
  n.op = Op::host_call;
  n.host = std::make_shared<HostSquare>(differentiable);
  return tracer.append(std::move(n), {x}, {type_of(x)}).at(0);
}

// Functionals without a gradient, to test the derived one. Registered for this test program only.
void register_derived() {
  FunctionalTable& table = FunctionalTable::global();
  Functional f;
  f.name = "test_cube";
  f.body = [](const AttributeMap&, std::span<const HTensor> in) { return Values{in[0] * in[0] * in[0]}; };
  table.add(f);
  f.name = "test_odd";  // an input as output, a repeated output, a nested call
  f.body = [](const AttributeMap&, std::span<const HTensor> in) {
    const HTensor c = call1("test_cube", {in[0]});
    return Values{in[1], c, c};
  };
  table.add(f);
}

}  // namespace

TEST_CASE("a second use of a value adds to its gradient") {
  const HTensor x = HTensor::from<double>({3}, {1, 2, 3});
  CHECK(gradients_of([](const Values& in) { return sum(in[0] * in[0] + in[0]); }, {x}) == Rows{{3, 5, 7}});
}

TEST_CASE("gradient: zero for independent values") {
  const HTensor x = HTensor::from<double>({3}, {1, 2, 3});
  CHECK(gradients_of([](const Values& in) { return sum(in[0]); }, {x, x}) == Rows{{1, 1, 1}, {0, 0, 0}});
  CHECK(gradients_of([](const Values&) { return full(DType::F64, {}, 2); }, {x}) == Rows{{0, 0, 0}});
  CHECK(gradients_of([](const Values& in) { return sum(floor(in[0])); }, {x}) == Rows{{0, 0, 0}});
}

TEST_CASE("gradient: stops at stop_gradient and integers") {
  const HTensor x = HTensor::from<double>({3}, {1, 2, 3});
  CHECK(gradients_of([](const Values& in) { return sum(stop_gradient(in[0]) * in[0]); }, {x}) == Rows{{1, 2, 3}});
  CHECK(gradients_of([](const Values& in) { return sum(cast(cast(in[0], DType::I64), DType::F64) * in[0]); }, {x}) ==
        Rows{{1, 2, 3}});
}

TEST_CASE("a gradient with respect to a value in the middle, and to the value itself") {
  Tracer tracer("middle");
  const HTensor x = tracer.input("x", kVector), h = x * 2.0, value = sum(h * h);
  const Values g = gradient(tracer, value, {h, x, value});
  tracer.output("h", g[0]);
  tracer.output("x", g[1]);
  tracer.output("value", g[2]);
  const Values r = interpret(tracer.take(), {{"x", HTensor::from<double>({3}, {1, 2, 3})}});
  CHECK(r[0].data<double>()[2] == 12);
  CHECK(r[1].data<double>()[2] == 24);
  CHECK(r[2].item<double>() == 1);
}

TEST_CASE("only scalars of floats have gradients, with respect to floats") {
  Tracer tracer("scalars");
  const HTensor x = tracer.input("x", kVector), i = tracer.input("i", {DType::I64, {3}});
  CHECK_THROWS_WITH(gradient(tracer, x, {x}),
                    "a gradient is taken of a floating-point scalar, not of f64[3]; reduce it first");
  CHECK_THROWS_WITH(gradient(tracer, sum(x), {i}), "there is no gradient with respect to a value of type i64[3]");
}

TEST_CASE("gradient: nodes have the forward node's path and origin, in the phase gradient") {
  Tracer tracer("scopes");
  HTensor x = tracer.parameter("w", kVector);
  {
    const TraceScope hidden({"hidden", Phase::forward, "net.hmx:3:1"});
    x = exp(x);
  }
  {
    const TraceScope loss({"hidden", Phase::loss});
    x = sum(x);
  }
  const size_t before = tracer.program().nodes.size();
  const TraceScope outside("outside");
  const Values g = gradient(tracer, x, {tracer.parameter("w", kVector)});
  CHECK(tracer.scope() == NodeScope{"outside"});
  tracer.update("w", g[0]);
  const Program p = tracer.take();
  bool hidden = false, loss = false;
  for (size_t i = before; i < p.nodes.size(); ++i) {
    const NodeScope& scope = p.scope_of(p.nodes[i]);
    CHECK(scope.phase == Phase::gradient);
    hidden = hidden || scope == NodeScope{"hidden", Phase::gradient, "net.hmx:3:1"};
    loss = loss || scope == NodeScope{"loss/hidden", Phase::gradient};
  }
  CHECK(hidden);
  CHECK(loss);
}

TEST_CASE("a small network agrees with finite differences") {
  check_gradient_of(
      [](const Values& in) {
        const HTensor h = tanh(linear(in[0], in[1], in[2]));
        return log_softmax(linear(h, in[3]));
      },
      {random_tensor({5, 3}, 1), random_tensor({4, 3}, 2), random_tensor({4}, 3), random_tensor({2, 4}, 4)});
}

TEST_CASE("gradient: a functional without a gradient is inlined in place") {
  register_derived();
  const HTensor x = random_tensor({3}, 1);
  check_gradient_of([](const Values& in) { return call1("test_cube", {in[0]}) * in[0]; }, {x});
  testing::check_gradient(
      [](const Values& in) {
        return call("test_odd", {in[0], in[1]});
      },
      {x, random_tensor({2, 2}, 2)});

  Tracer tracer("opened");
  const HTensor t = tracer.input("x", kVector);
  const Values odd = call("test_odd", {t, t * 3.0});
  const HTensor value = sum(odd[0] + odd[1] * odd[2]);
  const Values untouched = call("test_cube", {tracer.input("y", kVector)});
  tracer.output("gradient", gradient(tracer, value, {t}).at(0));
  tracer.output("middle", odd[1]);
  tracer.output("untouched", untouched[0]);
  const Program p = tracer.take();
  size_t calls = 0, cubes = 0;
  for (const Node& n : p.nodes) {
    calls += n.op == Op::call;
    cubes += n.op == Op::mul && p.scope_of(n) == NodeScope();
  }
  CHECK(calls == 1);  // the one that is not on the path
  CHECK(cubes == 4);  // x * 3, the two of the cube once, and the product of both results
  const Values r =
      interpret(p, {{"x", HTensor::from<double>({3}, {1, 2, -1})}, {"y", HTensor::from<double>({3}, {1, 2, 3})}});
  CHECK(r[0].data<double>()[1] == 3 + 6 * 32);  // 3x + x^6
  CHECK(r[1].data<double>()[1] == 8);
  CHECK(r[2].data<double>()[2] == 27);
}

TEST_CASE("gradient: a host function without a gradient is rejected") {
  const HTensor at = HTensor::from<double>({3}, {1, 2, 3});
  for (const bool differentiable : {true, false}) {
    Tracer tracer("host");
    const HTensor x = tracer.input("x", kVector), value = sum(host_square(tracer, x, differentiable));
    if (!differentiable) {
      CHECK_THROWS_WITH(
          gradient(tracer, value, {x}),
          "activation 'my_square' (plugin /tmp/libmine.so) reads numbers and supplies no gradient: it can infer but "
          "not train; write it with harmonics operations or override gradient()");
      continue;
    }
    tracer.output("y", value);
    tracer.output("dx", gradient(tracer, value, {x}).at(0));
    const Values r = interpret(tracer.take(), {{"x", at}});
    CHECK(r[0].item<double>() == 14);
    CHECK(r[1].data<double>()[2] == 6);
  }
}

TEST_CASE("gradient: a host function off the path needs none") {
  Tracer tracer("off");
  const HTensor x = tracer.input("x", kVector), w = tracer.parameter("w", kVector);
  const HTensor value = sum(host_square(tracer, x, false) * w);
  tracer.output("dw", gradient(tracer, value, {w}).at(0));
  CHECK(interpret(tracer.take(), {{"x", HTensor::from<double>({3}, {1, 2, 3})}, {"w", HTensor(DType::F64, {3})}})[0]
            .data<double>()[2] == 9);
}

TEST_CASE("a gradient of a gradient") {
  const HTensor x = HTensor::from<double>({3}, {1, 2, 3});
  CHECK(gradients_of(
            [](const Values& in) {
              const HTensor dx = gradient(*Tracer::current(), sum(in[0] * in[0] * in[0]), {in[0]}).at(0);
              return sum(dx * dx);
            },
            {x}) == Rows{{36, 288, 972}});  // (3x^2)^2 = 9x^4
}
