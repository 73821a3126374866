// keep_derivatives: the derivative of gelu is kept instead of its argument.
#include <catch2/catch.hpp>

#include <algorithm>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/interpret.hpp"
#include "engine/training/step_memory.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

enum class Also { nothing, output, late_reader, tanh_form };

// Two layers with gelu between them.
TrainingStep two_layers(Also also = Also::nothing) {
  TrainingStep step;
  Tracer tracer("net");
  const HTensor x = tracer.input("x", {DType::F32, {6, 5}});
  const HTensor w = tracer.parameter("w", {DType::F32, {8, 5}}), v = tracer.parameter("v", {DType::F32, {5, 8}});
  step.numbers = {{"x", noise({6, 5}, 1, 1)}, {"w", noise({8, 5}, 2, 1)}, {"v", noise({5, 8}, 3, 1)}};
  const HTensor argument = linear(x, w);
  Attributes form;
  if (also == Also::tanh_form) form.set("approximate", std::string("tanh"));
  const HTensor hidden = call("gelu", {argument}, form)[0];
  if (also == Also::output) tracer.output("argument", argument);
  HTensor loss = reduce_mean(linear(hidden, v), {0, 1});
  if (also == Also::late_reader) loss = loss + reduce_mean(argument * argument, {0, 1});
  tracer.output("loss", loss);
  for (const HTensor& g : gradient(tracer, loss, {w, v})) tracer.output("g" + std::to_string(g.shape()[0]), g);
  step.program = dce(cse(tracer.take()));
  return step;
}

// Returns how many calls of the functional are in the forward pass, or behind it.
int64_t calls(const Program& program, std::string_view name, bool forward) {
  return std::count_if(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    return node.op == Op::call && node.callee == name && is_forward(program, node) == forward;
  });
}
uint64_t kept_bytes(const Program& program) {
  uint64_t bytes = 0;
  for (const KeptValue& value : kept_values(program))
    if (value.type.shape == Shape{6, 8}) bytes += value.bytes();
  return bytes;
}

// Accepts every product with a single further operation, or none.
AcceptsCall products(bool accepts) {
  return [accepts](const std::string& callee, const AttributeMap& attributes, const std::vector<TensorType>& types,
                   Rounding) {
    CHECK(callee == "fused_dot");
    CHECK(attributes.text("steps") == "gelu(0)");
    CHECK(types.size() == 2);
    return accepts;
  };
}
Program kept(const Program& program, uint64_t least_bytes, bool accepts = true) {
  return keep_derivatives(program, least_bytes, products(accepts));
}

}  // namespace

TEST_CASE("keep_derivatives: the forward pass computes the derivative, same bits and memory") {
  const TrainingStep step = two_layers();
  const Program after = kept(step.program, 0);
  CHECK(calls(step.program, "gelu_grad", false) == 1);
  CHECK(calls(after, "gelu_grad", true) == 1);
  CHECK(calls(after, "gelu_grad", false) == 0);
  CHECK(kept_bytes(after) == kept_bytes(step.program));
  CHECK(same_bits(interpret(after, step.numbers), interpret(step.program, step.numbers)));
}

TEST_CASE("keep_derivatives: unchanged where the argument is kept anyway, small, or no product that can be finished") {
  for (const Also also : {Also::output, Also::late_reader, Also::tanh_form})
    CHECK(calls(kept(two_layers(also).program, 0), "gelu_grad", true) == 0);
  CHECK(calls(kept(two_layers().program, 6 * 8 * sizeof(float) + 1), "gelu_grad", true) == 0);
  CHECK(calls(kept(two_layers().program, 6 * 8 * sizeof(float)), "gelu_grad", true) == 1);
  CHECK(calls(kept(two_layers().program, 0, false), "gelu_grad", true) == 0);
}
