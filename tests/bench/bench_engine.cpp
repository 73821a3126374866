// The engine's overhead: an operation of a compiled plan, and a step of a flow that computes nothing.
#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "dsl/load.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/program/tracer.hpp"
#include "tests/bench/measure.hpp"

namespace harmonics::engine::bench {

namespace {

constexpr int64_t kOperations = 1024;

// A chain of scalar additions that are not fused.
struct Chain {
  explicit Chain(int threads) : executor(make_team_executor(threads)) {
    Tracer tracer("chain");
    const HTensor x = tracer.input("x", {DType::F32, {1}});
    HTensor sum = x;
    for (int64_t i = 0; i < kOperations; ++i) sum = sum + x;
    tracer.output("sum", sum);
    CompileOptions options;
    options.fuse = false;
    plan = compile(tracer.take(), nullptr, *executor, options);
  }
  const void* const* inputs() const { return &pointer; }

  std::unique_ptr<Executor> executor;
  std::unique_ptr<Executable> plan;
  float one = 1;
  const void* pointer = &one;
};

template <typename Body>
void per_operation(benchmark::State& state, const Chain& chain, const Body& body) {
  Times times;
  for (auto _ : state) time_into(times, body);
  state.counters["ns/operation"] = times.best() * 1e9 / static_cast<double>(chain.plan->steps().size());
  state.counters["operations"] = static_cast<double>(chain.plan->steps().size());
}

// All kernels are empty functions, so only the plan's loop is measured.
void empty_kernels(benchmark::State& state, int threads) {
  Chain chain(threads);
  per_operation(state, chain, [&] { chain.plan->run_empty(chain.inputs()); });
}

// Each kernel adds one number.
void one_number(benchmark::State& state, int threads) {
  Chain chain(threads);
  per_operation(state, chain, [&] { chain.plan->run(chain.inputs()); });
}

// Unlimited samples at no cost.
class Numbers : public Producer {
 public:
  HTensor next() override { return HTensor(DType::F32, Shape{1}); }
  size_t size() const override { return 0; }
  bool rewind() override { return true; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = Shape{1};
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    std::fill_n(static_cast<float*>(to), n, 0.5f);
    return static_cast<int64_t>(n);
  }
};

// Runs reader, limiter, step and sink of the flow graph with an empty step.
void empty_flow(benchmark::State& state, int threads) {
  const auto text = std::make_shared<SourceText>(
      "empty", "harmonic empty { producer numbers {1}; layer same; cycle { numbers -> same; } }");
  BoundGraph graph(make_graph(parse_flow(text), Registry::global()));
  graph.streams().bind(graph.graph(), graph.graph().find("numbers"), Source("numbers", std::make_shared<Numbers>()));
  RunSettings run;
  run.batch = 1;
  run.threads = threads;
  run.steps = 100000;
  double best = 1;
  for (auto _ : state) {
    const CycleReport report = CycleRuntime(graph, 0, run).run();
    const double seconds = report.seconds / static_cast<double>(report.steps);
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["ns/step"] = best * 1e9;
}

void add_all() {
  for (int threads : {1, 2}) {
    const std::string end = fmt::format("threads:{}", threads);
    benchmark::RegisterBenchmark(("plan/empty_kernels/" + end).c_str(), [=](benchmark::State& s) {
      empty_kernels(s, threads);
    })->UseRealTime();
    benchmark::RegisterBenchmark(("plan/one_number/" + end).c_str(), [=](benchmark::State& s) {
      one_number(s, threads);
    })->UseRealTime();
    benchmark::RegisterBenchmark(("empty_flow/" + end).c_str(), [=](benchmark::State& s) { empty_flow(s, threads); })
        ->UseManualTime()
        ->Iterations(10);
  }
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
