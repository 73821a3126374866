#include "engine/cycle/cycle_context.hpp"

#include <utility>

#include <fmt/core.h>

#include "engine/cycle/run_control.hpp"

namespace harmonics::engine {

CycleContext::CycleContext(CyclePlan& plan_of_run, CycleReport& report_of_run, CycleHooks& hooks_of_run,
                           CycleRecord& record_of_run, CycleWatch& watch_of_run, CyclePrograms& programs_of_run,
                           StepBoundary& boundary_of_run)
    : plan(plan_of_run),
      report(report_of_run),
      hooks(hooks_of_run),
      record(record_of_run),
      watch(watch_of_run),
      programs(programs_of_run),
      boundary(boundary_of_run) {
  at.reads.resize(plan.producers.size());
}

bool CycleContext::finish_because(std::string reason) {
  if (finished_.exchange(true)) return false;
  if (reason == "interrupt") interrupted_.store(true, std::memory_order_relaxed);
  report.stopped_by = std::move(reason);
  return true;
}

void CycleContext::note(const std::string& text) {
  if (hooks.control) hooks.control->note("note", text);
  if (hooks.note)
    hooks.note(text);
  else
    report.notes.push_back(text);
}

void CycleContext::event(const char* kind, std::string text) {
  constexpr size_t kMost = 256;
  if (report.events.size() == kMost) report.events.erase(report.events.begin());
  const double now = record.now();
  const Progress p = record.progress(now);
  report.events.push_back({kind, std::move(text), static_cast<int64_t>(record.epoch()) + 1, record.step(), now,
                           p.samples, p.samples_per_second, report.learning_rate});
  if (hooks.control) hooks.control->note("note", fmt::format("step {}: {}", record.step(), report.events.back().text));
  if (hooks.event) hooks.event(report.events.back());
}

}  // namespace harmonics::engine
