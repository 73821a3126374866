// finish_products: fuses a product with the elementwise operations on its result.
#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::vector<std::string> steps(const Program& program) {
  std::vector<std::string> found;
  for (const Node& node : program.nodes)
    if (node.op == Op::call && node.callee == "fused_dot") found.push_back(node.attributes.text("steps"));
  return found;
}
Program finished(const Program& program) {
  return finish_products(program, [](const auto&...) { return true; });
}

struct Traced {
  Tracer tracer{"net"};
  HTensor x = tracer.input("x", {DType::F32, {4, 3}}), r = tracer.input("r", {DType::F32, {4, 5}}),
          w = tracer.parameter("w", {DType::F32, {5, 3}}), b = tracer.parameter("b", {DType::F32, {5}});
  std::map<std::string, HTensor> numbers{
      {"x", noise({4, 3}, 1, 1)}, {"r", noise({4, 5}, 2, 1)}, {"w", noise({5, 3}, 3, 1)}, {"b", noise({5}, 4, 1)}};
};

}  // namespace

TEST_CASE("finish_products: bias, activation and residual sum, same bits") {
  Traced t;
  const HTensor y = linear(t.x, t.w, t.b);
  t.tracer.output("y", y);
  t.tracer.output("z", add(t.r, call("gelu", {y})[0]));
  const Program program = t.tracer.take(), fused = finished(program);
  CHECK(steps(fused) == std::vector<std::string>{"add(0,1) gelu(3) add(2,4)"});
  CHECK(same_bits(interpret(fused, t.numbers), interpret(program, t.numbers)));
}

TEST_CASE("finish_products: a bias that is also an operand, same bits") {
  Traced t;
  t.tracer.output("y", mul(linear(t.x, t.w, t.b), t.b));
  const Program program = t.tracer.take(), fused = finished(program);
  CHECK(steps(fused) == std::vector<std::string>{"add(0,1) mul(2,1)"});
  CHECK(same_bits(interpret(fused, t.numbers), interpret(program, t.numbers)));
}

TEST_CASE("finish_products: gradients, same bits") {
  Traced t;
  const HTensor hidden = call("gelu", {linear(t.x, t.w, t.b)})[0];
  const HTensor v = t.tracer.parameter("v", {DType::F32, {2, 5}});
  t.numbers["v"] = noise({2, 5}, 5, 1);
  const HTensor y = linear(hidden, v), loss = reduce_mean(mul(y, y), {0, 1});
  t.tracer.output("loss", loss);
  for (const HTensor& g : gradient(t.tracer, loss, {t.w, t.b, v})) t.tracer.output("g" + std::to_string(g.size()), g);
  const Program program = cse(t.tracer.take()), fused = finished(program);
  const std::vector<std::string> all = steps(fused);
  CHECK(std::count(all.begin(), all.end(), "gelu_grad(1,0)") == 1);
  CHECK(same_bits(interpret(fused, t.numbers), interpret(program, t.numbers)));
}

TEST_CASE("finish_products: a derivative beside the product, same bits") {
  Traced t;
  const HTensor u = t.tracer.parameter("u", {DType::F32, {5, 3}}), v = t.tracer.parameter("v", {DType::F32, {2, 5}});
  t.numbers["u"] = noise({5, 3}, 5, 1);
  t.numbers["v"] = noise({2, 5}, 6, 1);
  const HTensor gate = linear(t.x, t.w), hidden = mul(linear(t.x, u), mul(gate, logistic(gate)));
  const HTensor y = linear(hidden, v), loss = reduce_mean(mul(y, y), {0, 1});
  t.tracer.output("loss", loss);
  const std::vector<HTensor> gradients = gradient(t.tracer, loss, {t.w, u, v});
  for (size_t i = 0; i < gradients.size(); ++i) t.tracer.output("g" + std::to_string(i), gradients[i]);
  const Program program = recompute_elementwise(cse(t.tracer.take()), 0), fused = finished(program);
  const std::string last = steps(fused).back();
  CHECK(last.find("logistic(") != std::string::npos);
  CHECK(last.find("sub(") != std::string::npos);
  for (const Node& node : fused.nodes)
    if (node.op == Op::call && node.callee == "fused_dot" && node.attributes.text("steps") == last) {
      CHECK(node.outputs.size() == 2);
      CHECK(std::count_if(node.inputs.begin(), node.inputs.end(),
                          [&](ValueId i) { return fused.type(i).shape.rank() == 0; }) == 1);  // the number 1
    }
  CHECK(std::none_of(fused.nodes.begin(), fused.nodes.end(), [](const Node& node) { return node.op == Op::sub; }));
  CHECK(same_bits(interpret(fused, t.numbers), interpret(program, t.numbers)));
}

TEST_CASE("finish_products: an operand of equal numbers keeps its shape, same bits") {
  Traced t;
  const HTensor twos = full(DType::F32, {3, 5}, 2), y = dot(t.x, twos, {1}, {0});
  t.tracer.output("y", add(mul(y, full(DType::F32, {4, 5}, 3)), t.r));
  const Program program = t.tracer.take(), fused = finished(program);
  CHECK(steps(fused) == std::vector<std::string>{"mul(0,1) add(3,2)"});
  CHECK(same_bits(interpret(fused, t.numbers), interpret(program, t.numbers)));
}

TEST_CASE("finish_products: takes nothing that is computed later, of another shape, or by a declined call") {
  Traced t;
  const HTensor y = linear(t.x, t.w, t.b), later = call("softmax", {t.r})[0];
  t.tracer.output("later", add(y, later));
  t.tracer.output("sum", reduce_sum(y, {1}));
  const Program program = t.tracer.take();
  CHECK(steps(finished(program)).empty());

  Traced other;
  other.tracer.output("y", neg(linear(other.x, other.w, other.b)));
  const Program declined = other.tracer.take();
  CHECK(steps(finish_products(declined, [](const auto&...) { return false; })).empty());
  CHECK(steps(finished(declined)) == std::vector<std::string>{"add(0,1) neg(2)"});
}
