// Checks of schedules: learning rate factors in runs that end by steps, by time, or at an unknown point.
#include <cmath>
#include <bit>
#include <cstdint>

#include <fmt/core.h>
#include <harmonics/training_abi.h>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr int64_t kHorizon = 1000;

struct Run {
  const char* name;
  std::vector<hx_run_point> points;
};

hx_run_point point(int64_t step, int64_t steps, double progress) {
  return {sizeof(hx_run_point), 0, step, steps, progress};
}

// Returns runs of one step, of a thousand steps and by time, and one without end if the schedule allows it.
std::vector<Run> runs_for(const Item& item) {
  std::vector<Run> runs = {
      {"a run of one step", {point(0, 1, 0)}}, {"a run of 1000 steps", {}}, {"a run that ends by time", {}}};
  for (int64_t i = 0; i < kHorizon; ++i) {
    const double part = static_cast<double>(i) / kHorizon;
    runs[1].points.push_back(point(i, kHorizon, part));
    runs[2].points.push_back(point(i, 0, part));
  }
  if (item.flags & HX_NEEDS_END) return runs;
  runs.push_back({"an endless run", {}});
  for (int64_t i = 0; i < kHorizon; ++i) runs.back().points.push_back(point(i * i, 0, -1));
  return runs;
}

class CheckedSchedule {
 public:
  CheckedSchedule(const ItemPtr& item, const AttributeMap& arguments)
      : item_(item), arguments_(arguments), view_(arguments_) {}
  CheckedSchedule(const CheckedSchedule&) = delete;
  CheckedSchedule& operator=(const CheckedSchedule&) = delete;
  double operator()(const hx_run_point& at) const {
    double factor = std::nan("");
    const hx_status status = item_->table<hx_schedule_vt>().factor(item_->self, view_.get(), &at, &factor);
    if (status != HX_OK) throw plugin_error(*item_, status);
    return factor;
  }

 private:
  ItemPtr item_;
  AttributeMap arguments_;
  AttributeView view_;
};

bool same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Describes the first invalid factor: "the factor -1 at step 2 of a run ..."; "" if there is none.
std::string unusable(const CheckedSchedule& factor, const std::vector<Run>& runs) {
  for (const Run& run : runs)
    for (const hx_run_point& at : run.points)
      if (const double f = factor(at); !(f >= 0) || !std::isfinite(f))
        return fmt::format("the factor {} at step {} of {}", f, at.step, run.name);
  return "";
}

Finding usable(const CheckedSchedule& factor, const std::vector<Run>& runs) {
  if (const std::string text = unusable(factor, runs); !text.empty())
    return {Outcome::Failed, text,
            "a factor is a number of at least 0; progress is below 0 if the end of the run is unknown"};
  const std::vector<hx_run_point>& all = runs[1].points;
  double most = 0;
  for (const hx_run_point& at : all) most = std::max(most, factor(at));
  if (most == 0)
    return {Outcome::Noted, "the factor is 0 at every step of " + std::string(runs[1].name),
            "nothing is trained with it"};
  return {
      Outcome::Passed,
      fmt::format("{:.4g} at first, {:.4g} at most, {:.4g} at the end", factor(all.front()), most, factor(all.back())),
      ""};
}

Finding pure(const CheckedSchedule& factor, const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    std::vector<double> once;
    for (const hx_run_point& at : run.points) once.push_back(factor(at));
    for (size_t i = run.points.size(); i-- > 0;)
      if (const double again = factor(run.points[i]); !same(again, once[i]))
        return {Outcome::Failed,
                fmt::format("at step {} of {} it gives {}, and at a second call {}", run.points[i].step, run.name,
                            once[i], again),
                "keep no state between calls: a resumed run starts calling it in the middle"};
  }
  return {};
}

Finding on_threads(const CheckedSchedule& factor, const std::vector<Run>& runs) {
  std::vector<double> expected;
  for (const hx_run_point& at : runs[1].points) expected.push_back(factor(at));
  const std::string error = on_four_threads(20, [&] {
    for (size_t i = 0; i < expected.size(); ++i)
      if (!same(factor(runs[1].points[i]), expected[i]))
        throw Error(ErrorKind::Plugin, "another factor than on one thread");
  });
  if (error.empty()) return {};
  return {Outcome::Failed, error, "runs on several threads share the schedule: keep no mutable state"};
}

}  // namespace

void check_schedule(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const CheckedSchedule factor(item, arguments_to_try(*item));
  const std::vector<Run> runs = runs_for(*item);
  const bool answers = attempt(
      log, "gives factors that can be used", [&] { return usable(factor, runs); },
      "give a factor at every point: steps is 0 and progress below 0 if the end of the run is unknown");
  if (!answers) return;
  attempt(log, "depends on the point of the run alone", [&] { return pure(factor, runs); });
  attempt(log, "accepts the values that its ranges allow", [&] {
    return at_the_ends(*item,
                       [&](const AttributeMap& arguments) { return unusable(CheckedSchedule(item, arguments), runs); });
  });
  attempt(log, "threads", [&] { return on_threads(factor, runs); });
  attempt(log, "many calls", [&] { return many_calls(settings, [&] { factor(runs[1].points[500]); }); });
}

}  // namespace harmonics::engine
