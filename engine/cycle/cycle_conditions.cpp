#include "engine/cycle/cycle_conditions.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include "engine/measure/epoch_history.hpp"

namespace harmonics::engine {

namespace {

// Returns the metric to request, for example "f1" for "val.output.f1". Returns "" if no metric reports the figure.
std::string metric_to_ask_for(BoundGraph& graph, std::string figure) {
  for (const std::string_view prefix : {"val.", "window."})
    if (figure.starts_with(prefix)) figure.erase(0, prefix.size());
  if (const size_t dot = figure.find('.'); dot != std::string::npos && graph.graph().find(figure.substr(0, dot)) >= 0)
    figure.erase(0, dot + 1);
  return figure == "accuracy" ? "" : metric_giving(graph.registry(), figure);
}

}  // namespace

void CycleConditions::expect_one_of(const std::vector<std::string>& names, const char* word,
                                    const Comparison& c) const {
  if (std::find(names.begin(), names.end(), c.metric) != names.end()) return;
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  Error e(ErrorKind::Name,
          fmt::format("'{} {}' can never hold: this cycle does not measure '{}'", word, c.metric, c.metric), c.span,
          {"it measures " + known});
  if (const std::string metric = metric_to_ask_for(cycle_.plan.graph, c.metric); !metric.empty())
    e.note(fmt::format("request it with --metric '{}'", metric));
  throw e;
}

void CycleConditions::expect_measured() const {
  const CyclePlan& plan = cycle_.plan;
  if (!plan.training) return;
  expect_validation(plan.graph, plan.cycle, plan.settings);
  const std::vector<std::string> names = cycle_.watch.names(cycle_.programs.measured());
  for (const Comparison& c : plan.settings.until) expect_one_of(names, "until", c);
  for (const GraphConditional& c : plan.graph.graph().conditionals)
    if (!c.predicate && c.cycle == plan.cycle) expect_one_of(names, "if", c.metric);
}

void CycleConditions::check() {
  const ResolvedSettings& s = cycle_.plan.settings;
  const CycleRecord& record = cycle_.record;
  const std::optional<int64_t>& repeats_until = cycle_.hooks.repeats_until;
  if (repeats_until && record.step() >= *repeats_until) cycle_.finish_because("not finite");
  cycle_.heed_stop();
  if (s.steps && record.step() >= *s.steps) cycle_.finish_because("steps");
  if (s.seconds && !repeats_until && record.now() >= *s.seconds) cycle_.finish_because("for");
  check_metrics();
}

void CycleConditions::check_metrics() {
  for (const Comparison& c : cycle_.plan.settings.until)
    if (cycle_.record.metrics().holds(c))
      cycle_.finish_because(fmt::format("until {} {} {:g}", c.metric, c.op, c.value));
}

// Counts the epochs of the report, which include those before a resume.
void CycleConditions::check_patience() {
  const std::optional<int64_t>& patience = cycle_.plan.settings.patience;
  if (!patience || cycle_.report.by_epoch.empty() || !cycle_.report.by_epoch.back().validation) return;
  const EpochReport* const best = best_of(cycle_.report.by_epoch);
  if (best && cycle_.report.by_epoch.back().epoch - best->epoch >= *patience)
    cycle_.finish_because(fmt::format("by patience: no smaller val.loss since epoch {}", best->epoch));
}

}  // namespace harmonics::engine
