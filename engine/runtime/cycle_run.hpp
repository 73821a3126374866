// CycleRun: one run of a cycle. Three stages, input, step and output, as a oneTBB flow graph.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "engine/runtime/cycle_feed.hpp"
#include "engine/runtime/cycle_plan.hpp"
#include "engine/runtime/cycle_programs.hpp"
#include "engine/runtime/cycle_record.hpp"
#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics {

class CycleRun {
 public:
  CycleRun(CycleRuntime& owner, CycleReport& report);
  void run();

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool stopping() const;
  void check_until() const;
  void forget_moments();

  void step(Slot& slot);
  void run_batch(Slot& slot);
  void end_step();
  void close_epoch(uint64_t next);
  float next_rate();
  void check_conditions();
  void finish_because(std::string reason);
  [[noreturn]] void diverged(const CompiledStep& program, const Slot& slot);

  void deliver(const Slot& slot);
  void finish();

  CycleRuntime& owner_;
  CycleReport& report_;
  CyclePlan plan_;
  CycleFeed feed_;
  CycleRecord record_;
  CyclePrograms programs_;
  std::optional<LearningRate> rate_;  // training
  std::atomic<bool> finished_{false};
  std::chrono::steady_clock::time_point start_;
  double next_progress_ = 0;
};

}  // namespace harmonics
