#include <chrono>

#include <fmt/core.h>

#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics {

namespace {

// The tapped branch: the first of every condition, else the second.
Lowered lower_tapped(HarmonicGraph& graph, LoweringOptions options) {
  const Graph& g = graph.graph();
  for (const int branch : {0, 1}) {
    options.branches.clear();
    for (size_t i = 0; i < g.conditionals.size(); ++i)
      if (g.conditionals[i].cycle == options.cycle) options.branches.insert(static_cast<int>(2 * i) + branch);
    Lowered lowered = graph.lower(options);
    if (lowered.program.output("loss")) return lowered;
  }
  throw Error(ErrorKind::Usage, "this cycle has no training tap, so nothing can be tested");
}

}  // namespace

Evaluation evaluate(HarmonicGraph& graph, int cycle, StreamSet& streams, const RunSettings& run) {
  using Clock = std::chrono::steady_clock;
  const ResolvedSettings settings = graph.settings(cycle, run);
  const Graph& g = graph.graph();
  const std::vector<int> producers = g.producers_used(cycle, true);
  for (int n : producers)
    if (!streams.bound(n))
      throw Error(ErrorKind::Usage, fmt::format("producer '{}' has no test data", g.nodes[static_cast<size_t>(n)].name), {}, {fmt::format("give it: --test {}=file:PATH", g.nodes[static_cast<size_t>(n)].name)});
  check_same_samples(g, graph.types(), streams.types(g));
  const uint64_t batch = streams.batch().value_or(static_cast<uint64_t>(settings.batch));
  std::unique_ptr<JointReader> reader = streams.reader(g, producers, batch, false, settings.seed);
  if (reader->size() == 0) throw Error(ErrorKind::Usage, "test data must be finite");
  reader->begin(0);
  const auto start = Clock::now();
  const uint64_t most = std::min(batch, reader->size());
  std::vector<std::shared_ptr<Storage>> buffers;
  std::vector<void*> targets;
  for (size_t i = 0; i < producers.size(); ++i) {
    buffers.push_back(std::make_shared<Storage>(reader->bytes(i) * most));
    targets.push_back(buffers.back()->data());
  }
  LoweringOptions o;
  o.mode = Mode::evaluate;
  o.cycle = cycle;
  o.seed = settings.seed;
  const CompileOptions c = graph.compile_options(run);
  std::map<uint64_t, std::unique_ptr<CompiledStep>> steps;
  Evaluation result;
  double loss = 0, correct = 0, counted = 0;
  while (const uint64_t n = reader->read(most, targets.data())) {
    auto& step = steps[n];
    if (!step) {
      o.batch = static_cast<int64_t>(n);
      step = std::make_unique<CompiledStep>(lower_tapped(graph, o), graph.store(), graph.executor(run.threads), c);
    }
    step->check_indices(targets.data());
    step->set(targets.data(), 0, 1, settings.seed);
    step->run();
    loss += static_cast<double>(*step->loss()) * static_cast<double>(n);
    for (size_t i = 0; i < step->lowered().losses.size(); ++i)
      if (const float* right = step->correct(i)) {
        correct += *right;
        counted += static_cast<double>(step->lowered().losses[i].counted);
        break;
      }
    result.samples += static_cast<int64_t>(n);
  }
  result.loss = result.samples ? loss / static_cast<double>(result.samples) : 0;
  if (counted > 0) result.accuracy = correct / counted;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

}  // namespace harmonics
