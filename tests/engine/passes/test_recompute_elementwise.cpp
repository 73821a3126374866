// recompute_elementwise: results that the backward pass recomputes instead of keeping them.
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

// A gated layer. The last map reads `silu(gate) * up`.
TrainingStep gated_step(int64_t rows, int64_t width, int64_t hidden,
                        const std::function<HTensor(const HTensor& gate, const HTensor& up)>& joined) {
  TrainingStep step;
  Tracer tracer("gated");
  const HTensor x = tracer.input("x", {DType::F32, {rows, width}});
  std::vector<HTensor> weights;
  for (const auto& [name, shape] :
       {std::pair<const char*, Shape>{"gate", {hidden, width}}, {"up", {hidden, width}}, {"down", {width, hidden}}}) {
    weights.push_back(tracer.parameter(name, {DType::F32, shape}));
    step.numbers[name] = noise(shape, static_cast<uint32_t>(weights.size()), 0.3f);
  }
  const HTensor y = linear(joined(linear(x, weights[0]), linear(x, weights[1])), weights[2]);
  const HTensor loss = reduce_mean(y * y, {0, 1});
  tracer.output("loss", loss);
  const std::vector<HTensor> gradients = gradient(tracer, loss, weights);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient" + std::to_string(i), gradients[i]);
  step.numbers["x"] = noise({rows, width}, 9, 1.0f);
  step.program = tracer.take();
  return step;
}

HTensor silu_times(const HTensor& gate, const HTensor& up) { return gate * logistic(gate) * up; }

Program passed(const Program& program) { return dce(cse(simplify(program))); }

// Returns the bytes of values of this shape that are kept for the gradient.
uint64_t kept_bytes(const Program& program, const Shape& shape) {
  uint64_t bytes = 0;
  for (const KeptValue& value : kept_values(program))
    if (value.type.shape == shape) bytes += value.bytes();
  return bytes;
}

}  // namespace

TEST_CASE("recompute_elementwise: a gated activation keeps gate, up and what the next map reads") {
  const TrainingStep step = gated_step(6, 5, 8, silu_times);
  const Program before = passed(step.program), after = recompute_elementwise(before, 0);
  const uint64_t one = 6 * 8 * sizeof(float);
  CHECK(kept_bytes(before, {6, 8}) == 5 * one);  // including the logistic function and silu
  CHECK(kept_bytes(after, {6, 8}) == 3 * one);
  CHECK(same_bits(interpret(before, step.numbers), interpret(after, step.numbers)));
  CHECK(recompute_elementwise(after, 0).nodes.size() == after.nodes.size());
}

TEST_CASE("recompute_elementwise: keeps small results and results whose operands are not kept") {
  const TrainingStep step = gated_step(6, 5, 8, silu_times);
  const Program small = passed(step.program);
  CHECK(recompute_elementwise(small, 1 << 20).nodes.size() == small.nodes.size());
  // The gradient reads only tanh(gate), so recomputation would have to keep gate instead.
  const TrainingStep other =
      gated_step(6, 5, 8, [](const HTensor& gate, const HTensor& up) { return tanh(gate) + up; });
  const Program before = passed(other.program), after = recompute_elementwise(before, 0);
  CHECK(kept_bytes(after, {6, 8}) == kept_bytes(before, {6, 8}));
}

TEST_CASE("recompute_elementwise: the step on the CPU needs less memory and keeps the gradients' bits") {
  const TrainingStep step = gated_step(256, 48, 1024, silu_times);
  const auto executor = make_sequential_executor();
  CompileOptions now = on("cpu"), whole = on("cpu");
  whole.disabled = {"recompute_elementwise"};
  MapBinding binding(step.numbers);
  const uint64_t kept = compile(step.program, &binding, *executor, whole)->memory().arena_bytes,
                 recomputed = compile(step.program, &binding, *executor, now)->memory().arena_bytes;
  INFO("arena " << kept << " bytes, with recomputation " << recomputed);
  // Keeps two values less. At the peak, gradients partly occupy the freed memory.
  CHECK(recomputed + 256 * 1024 * sizeof(float) <= kept);
  CHECK(same_bits(run_compiled(step.program, step.numbers, *executor, now),
                  run_compiled(step.program, step.numbers, *executor, whole)));
}
