#include "tests/bench/program.hpp"

#include <fmt/core.h>
#include <harmonics/philox.hpp>

#include "engine/tensor/value.hpp"

namespace harmonics::engine::bench {

PreparedProgram::PreparedProgram(const std::vector<Shape>& inputs, const Trace& trace, int threads)
    : executor_(make_team_executor(threads)) {
  Tracer tracer("bench");
  std::vector<HTensor> traced;
  PhiloxStream random(philox_key(1, 0), 0);
  for (const Shape& shape : inputs) {
    const TensorType type{DType::F32, shape};
    traced.push_back(tracer.input(fmt::format("in{}", traced.size()), type));
    buffers_.push_back(std::make_shared<Storage>(type.bytes()));
    pointers_.push_back(buffers_.back()->data());
    auto* numbers = static_cast<float*>(buffers_.back()->data());
    for (int64_t i = 0; i < shape.count(); ++i) numbers[i] = random.uniform() * 2 - 1;
  }
  size_t i = 0;
  for (const HTensor& result : trace(traced)) tracer.output(fmt::format("out{}", i++), result);
  plan_ = compile(tracer.take(), nullptr, *executor_);
}

std::string PreparedProgram::kernels() const {
  std::string text;
  for (const PlanStep& step : plan_->steps()) text += (text.empty() ? "" : " + ") + step.kernel;
  return text;
}

void add_program(const std::string& name, std::vector<Shape> inputs, Trace trace, double flops, double bytes) {
  for (int threads : {1, 2})
    benchmark::RegisterBenchmark(fmt::format("{}/threads:{}", name, threads).c_str(),
                                 [=](benchmark::State& state) {
                                   PreparedProgram program(inputs, trace, threads);
                                   measure(state, {.flops = flops, .bytes = bytes, .threads = threads},
                                           [&] { program.run(); });
                                   state.SetLabel(program.kernels());
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace harmonics::engine::bench
