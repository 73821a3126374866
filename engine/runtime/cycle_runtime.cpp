#include "engine/runtime/cycle_runtime.hpp"

#include "engine/runtime/cycle_run.hpp"

namespace harmonics {

CycleRuntime::CycleRuntime(HarmonicGraph& graph, int cycle, RunSettings settings) : graph_(graph), cycle_(cycle), settings_(std::move(settings)) {}
CycleRuntime::~CycleRuntime() = default;

CycleReport CycleRuntime::run() {
  CycleReport report;
  CycleRun(*this, report).run();
  return report;
}

}  // namespace harmonics
