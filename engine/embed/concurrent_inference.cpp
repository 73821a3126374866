#include "engine/embed/concurrent_inference.hpp"

#include <chrono>

namespace harmonics::engine {

namespace {

// Longest wait for a step; after that inference uses the newest snapshot.
constexpr std::chrono::seconds kLongestWait{2};

}  // namespace

LoweringOptions inference_options(const BoundGraph& graph, int64_t batch) {
  LoweringOptions o;
  o.mode = Mode::infer;
  o.batch = batch;
  o.wanted = graph.results(0);
  o.branches = graph.graph().branches(0);
  return o;
}

std::vector<HTensor> run_inference(const BoundGraph& graph, CompiledStep& step, const std::map<int, HTensor>& inputs,
                                   bool stacked) {
  std::vector<const void*> pointers;
  for (int n : step.lowered().inputs) pointers.push_back(inputs.at(n).bytes());
  step.check_indices(pointers.data());
  step.set(pointers.data(), 0, 1, 0);
  step.run();
  std::vector<HTensor> results;
  for (int n : graph.results(0)) {
    const auto value = step.lowered().values.find(n);
    if (value == step.lowered().values.end()) continue;
    const HTensor& y = step.executable().output(value->second);
    results.emplace_back(y.dtype(), stacked ? y.shape() : y.shape().from(1), y.bytes());
  }
  return results;
}

bool ConcurrentInference::prepare() {
  {
    const std::lock_guard<std::mutex> lock(asking_);
    if (snapshots_) return true;
  }
  return lowered_for(1) != nullptr;
}

void ConcurrentInference::forget() {
  const std::lock_guard<std::mutex> lock(asking_);
  programs_.clear();
  snapshots_.reset();
}

// Lowers the program of this batch size unless it is known, and returns the snapshots; null if the run is over.
std::shared_ptr<Snapshots> ConcurrentInference::lowered_for(int64_t batch) {
  {
    const std::lock_guard<std::mutex> lock(asking_);
    if (programs_.count(batch)) return snapshots_;
  }
  std::optional<Lowered> lowered;
  auto snapshots = runtime_.snapshots([&] {
    graph_.assume_declared_streams();
    lowered = graph_.lower(inference_options(graph_, batch));
  });
  if (!snapshots) return nullptr;
  const std::lock_guard<std::mutex> lock(asking_);
  snapshots_ = snapshots;
  programs_.emplace(batch, Programs{std::move(*lowered)});
  return snapshots;
}

std::optional<std::vector<HTensor>> ConcurrentInference::run(const std::map<int, HTensor>& inputs, int64_t batch,
                                                             bool stacked) {
  const std::shared_ptr<Snapshots> snapshots = lowered_for(batch);
  if (!snapshots) return std::nullopt;
  std::shared_ptr<const Snapshot> weights;
  if (CycleRuntime::in_step_of_this_thread() || std::this_thread::get_id() == thread_) {  // a callback of the run
    if (!runtime_.snapshots([] {})) return std::nullopt;  // snapshots the weights if a step has ended since
    weights = snapshots->newest();
  } else {
    weights = snapshots->fresh(Snapshots::Clock::now() + kLongestWait);
  }
  std::unique_lock<std::mutex> lock(asking_);
  const auto known = programs_.find(batch);
  if (known == programs_.end() || snapshots_ != snapshots) {  // forget() was called meanwhile
    lock.unlock();
    return run(inputs, batch, stacked);
  }
  Programs& programs = known->second;
  if (!programs.step)
    programs.step =
        std::make_unique<SnapshotStep>(programs.lowered, *snapshots, *executor_, graph_.compile_options(settings_));
  return run_inference(graph_, programs.step->on(*weights), inputs, stacked);
}

}  // namespace harmonics::engine
