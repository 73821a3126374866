// sum_with_products: fuses a product with the sum of one operand.
#include <catch2/catch.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

size_t calls(const Program& program) {
  size_t n = 0;
  for (const Node& node : program.nodes) n += node.op == Op::call && node.callee == "dot_sum";
  return n;
}
Program joined(const Program& program) {
  return sum_with_products(program, [](const auto&...) { return true; });
}

// dot(a, b) over axis 0 of both, and a sum of one operand over `axes`, before or after it.
Program pair(int which, std::vector<int64_t> axes, bool behind = true, bool keep = false) {
  Tracer tracer("pair");
  const HTensor a = tracer.input("a", {DType::F32, {4, 3}}), b = tracer.input("b", {DType::F32, {4, 5}});
  const auto sum = [&] { return tracer.output("sum", reduce_sum(which == 0 ? a : b, axes, keep)); };
  if (!behind) sum();
  tracer.output("product", dot(a, b, {0}, {0}));
  if (behind) sum();
  return tracer.take();
}

}  // namespace

TEST_CASE("sum_with_products: weight and bias gradients together, same bits") {
  const TrainingStep step = training_step(6, {5, 7, 4, 3});
  const Program together = joined(step.program);
  CHECK(calls(step.program) == 0);
  CHECK(calls(together) == 3);
  CHECK(same_bits(interpret(together, step.numbers), interpret(step.program, step.numbers)));
}

TEST_CASE("sum_with_products: either operand, over the contracted axes only") {
  const std::map<std::string, HTensor> numbers{{"a", noise({4, 3}, 1, 1)}, {"b", noise({4, 5}, 2, 1)}};
  for (const int which : {0, 1}) {
    const Program program = pair(which, {0}), together = joined(program);
    REQUIRE(calls(together) == 1);
    for (const Node& node : together.nodes)
      if (node.op == Op::call) CHECK(node.attributes.integer("sum") == which);
    CHECK(same_bits(interpret(together, numbers), interpret(program, numbers)));
    CHECK(calls(joined(pair(which, {1}))) == 0);
    CHECK(calls(joined(pair(which, {0, 1}))) == 0);
    CHECK(calls(joined(pair(which, {0}, false))) == 0);
    CHECK(calls(joined(pair(which, {0}, true, true))) == 0);
  }
}

TEST_CASE("sum_with_products: a sum is fused with one product only") {
  Tracer tracer("two");
  const HTensor a = tracer.input("a", {DType::F32, {4, 3}}), b = tracer.input("b", {DType::F32, {4, 5}}),
                c = tracer.input("c", {DType::F32, {4, 2}});
  tracer.output("first", dot(a, b, {0}, {0}));
  tracer.output("second", dot(a, c, {0}, {0}));
  tracer.output("sum", reduce_sum(a, {0}));
  const Program program = tracer.take(), together = joined(program);
  CHECK(calls(together) == 1);
  const std::map<std::string, HTensor> numbers{
      {"a", noise({4, 3}, 1, 1)}, {"b", noise({4, 5}, 2, 1)}, {"c", noise({4, 2}, 3, 1)}};
  CHECK(same_bits(interpret(together, numbers), interpret(program, numbers)));
}
