#include "engine/runtime/cycle_runtime.hpp"

#include <chrono>

#include <fmt/core.h>

#include "engine/runtime/checkpointer.hpp"
#include "engine/runtime/cycle_run.hpp"

namespace harmonics {

namespace {

double machine_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

CycleRuntime::CycleRuntime(HarmonicGraph& graph, int cycle, RunSettings settings)
    : graph_(graph), cycle_(cycle), settings_(std::move(settings)), clock_(machine_seconds) {}
CycleRuntime::~CycleRuntime() = default;

void CycleRuntime::resume(Checkpoint c) {
  if (!c.state.not_resumable.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' cannot be resumed: {}", c.path, c.state.not_resumable), {}, {fmt::format("its weights are good: --weights {}", c.path)});
  graph_.restore(c.file);
  resume_ = std::make_unique<Checkpoint>(std::move(c));
}

void CycleRuntime::declare_parameters() {
  CyclePlan plan(graph_, cycle_, settings_);
  Metrics metrics;
  CyclePrograms(plan, metrics, nullptr).trace();
}

CycleReport CycleRuntime::run() {
  CycleReport report;
  CycleRun run(*this, report);
  const auto known = [this](CycleRun* now) {
    const std::lock_guard<std::mutex> lock(running_);
    run_ = now;
  };
  known(&run);
  const auto over = [&] {
    if (control_) control_->end(false);
    known(nullptr);
  };
  try {
    run.run();
  } catch (...) {
    over();
    throw;
  }
  over();
  return report;
}

bool CycleRuntime::checkpoint_now() {
  const std::lock_guard<std::mutex> lock(running_);
  return run_ && run_->checkpoint_now();
}

}  // namespace harmonics
