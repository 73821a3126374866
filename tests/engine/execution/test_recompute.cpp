// Recomputation saves memory and gives bitwise equal gradients.
#include <catch2/catch.hpp>

#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Blocks x + mlp(x) with wide inner values and a narrow residual stream.
TrainingStep deep_step(int blocks) {
  TrainingStep step;
  Tracer tracer("deep");
  const int64_t batch = 32, width = 8, inner = 256;
  HTensor h = tracer.input("x", {DType::F32, {batch, width}});
  std::vector<HTensor> parameters;
  for (int i = 0; i < blocks; ++i) {
    const std::string block = "block" + std::to_string(i);
    HTensor m = h;
    {
      const TraceScope scope(block + "/mlp");
      for (const Shape& shape : {Shape{inner, width}, Shape{width, inner}}) {
        const std::string name = block + ".w" + std::to_string(parameters.size());
        parameters.push_back(tracer.parameter(name, {DType::F32, shape}));
        step.numbers[name] = noise(shape, static_cast<uint32_t>(parameters.size()), 0.2f);
        m = linear(m, parameters.back());
        if (shape[0] == inner) m = call1("gelu", {m});
      }
    }
    const TraceScope scope(block + "/residual");
    h = h + m;
  }
  const HTensor loss = reduce_mean(h * h, {0, 1});
  const std::vector<HTensor> gradients = gradient(tracer, loss, parameters);
  tracer.output("loss", loss);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient" + std::to_string(i), gradients[i]);
  step.numbers["x"] = noise({batch, width}, 99, 1.0f);
  step.program = tracer.take();
  return step;
}

}  // namespace

TEST_CASE("recomputation lowers the peak memory and keeps the gradients' bits") {
  const TrainingStep step = deep_step(8);
  const auto executor = make_sequential_executor();
  for (const char* device : {"reference", "cpu"}) {
    INFO(device);
    CompileOptions plain = on(device), again = on(device);
    again.recompute = {"*/mlp"};
    MapBinding binding(step.numbers);
    const MemoryReport kept = compile(step.program, &binding, *executor, plain)->memory();
    const MemoryReport recomputed = compile(step.program, &binding, *executor, again)->memory();
    INFO("arena " << kept.arena_bytes << " bytes, with recomputation " << recomputed.arena_bytes);
    CHECK(recomputed.arena_bytes < kept.arena_bytes * 7 / 10);
    CHECK(same_bits(run_compiled(step.program, step.numbers, *executor, plain),
                    run_compiled(step.program, step.numbers, *executor, again)));
  }
}
