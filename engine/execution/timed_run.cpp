// Timed and empty runs of a CompiledPlan, separate from untimed ones.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "engine/execution/compiled_plan.hpp"

namespace harmonics::engine {

namespace {

uint64_t now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

void do_nothing(const void*, void* const*, uint32_t, uint32_t) {}

// Numbers threads in order of appearance, starting at 0.
class ThreadNumbers {
 public:
  uint32_t mine() {
    const std::thread::id id = std::this_thread::get_id();
    const auto it = std::find(seen_.begin(), seen_.end(), id);
    if (it != seen_.end()) return static_cast<uint32_t>(it - seen_.begin());
    seen_.push_back(id);
    return static_cast<uint32_t>(seen_.size() - 1);
  }

 private:
  std::vector<std::thread::id> seen_;
};

struct TimedPhase {
  const KernelStep* step;
  PlanTimes* times;
  ThreadNumbers* threads;
  std::mutex* mutex;
  uint32_t number, phase, threads_of_plan;
  bool turned;
  uint32_t part_at(uint32_t part) const {
    return turned ? turned_part(step->parts[phase], threads_of_plan, part) : part;
  }
};

void run_timed_part(const void* context, uint32_t place) {
  const auto& at = *static_cast<const TimedPhase*>(context);
  const uint32_t part = at.part_at(place);
  const uint64_t begin = now();
  at.step->run(at.step->context, at.step->buffers, at.phase, part);
  const uint64_t end = now();
  std::lock_guard lock(*at.mutex);
  at.times->parts.push_back({at.number, at.phase, part, at.threads->mine(), begin, end});
}

void run_part(const void* context, uint32_t part) {
  const auto& at = *static_cast<const TimedPhase*>(context);
  at.step->run(at.step->context, at.step->buffers, at.phase, at.part_at(part));
}

}  // namespace

void CompiledPlan::run_timed(const void* const* inputs, PlanTimes& times) {
  times.stamps.resize(p_.steps.size() + 1);
  times.parts.clear();
  ThreadNumbers threads;
  threads.mine();
  std::mutex mutex;
  const auto body = times.wants_parts ? run_timed_part : run_part;
  point_at(inputs);
  for (size_t i = 0; i < p_.steps.size(); ++i) {
    const KernelStep& step = p_.steps[i];
    times.stamps[i] = now();
    for (uint32_t phase = 0; phase < step.phases; ++phase) {
      const TimedPhase at{&step,
                          &times,
                          &threads,
                          &mutex,
                          static_cast<uint32_t>(i),
                          phase,
                          static_cast<uint32_t>(executor_.threads()),
                          turned_ && step.turns};
      if (step.parts[phase] == 1)
        body(&at, 0);
      else
        executor_.run(step.parts[phase], body, &at);
    }
  }
  times.stamps.back() = now();
  turned_ = turns_ && !turned_;
}

void CompiledPlan::run_empty(const void* const* inputs) {
  if (empty_.empty()) {
    empty_ = p_.steps;
    for (KernelStep& step : empty_) step.run = do_nothing;
  }
  point_at(inputs);
  run_first(empty_.data());
  run_second(empty_.data());
}

}  // namespace harmonics::engine
