// Checks of predicates, evaluated at points of a run before and after the first measurements.
#include <fmt/core.h>
#include <harmonics/training_abi.h>

#include <cmath>
#include <set>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

// A run that returns `value` for every metric, or has not measured any yet.
struct MetricValues {
  bool measured = false;
  double value = 0;
  std::set<std::string>* names = nullptr;  // requested metrics
};

hx_status metric_of(const void* run, const char* name, double* out) {
  const auto& stand_in = *static_cast<const MetricValues*>(run);
  if (stand_in.names) stand_in.names->insert(name ? name : "");
  if (!stand_in.measured) return HX_DECLINED;
  *out = stand_in.value;
  return HX_OK;
}

struct Point {
  int64_t step, epoch, samples;
  MetricValues run;
  std::string str() const {
    return fmt::format("step {}{}", step,
                       run.measured ? fmt::format(" with metrics of {:g}", run.value) : " before anything is measured");
  }
};

std::vector<Point> points() {
  std::vector<Point> all;
  for (const double value : {std::nan(""), 10.0, 1.0, 0.5, 0.1, 0.0})
    for (int64_t step = 0; step < 200; ++step)
      all.push_back({step < 100 ? step : step * step, step / 50, 64 * step * step, {!std::isnan(value), value}});
  return all;
}

class CheckedPredicate {
 public:
  CheckedPredicate(const ItemPtr& item, const AttributeMap& arguments)
      : item_(item), arguments_(arguments), view_(arguments_) {}
  CheckedPredicate(const CheckedPredicate&) = delete;
  CheckedPredicate& operator=(const CheckedPredicate&) = delete;
  int32_t operator()(const Point& at, std::set<std::string>* names = nullptr) const {
    MetricValues run = at.run;
    run.names = names;
    const hx_run_view view{sizeof view, 0, at.step, at.epoch, at.samples, &run, metric_of};
    int32_t out = -1;
    const hx_status status = item_->table<hx_predicate_vt>().holds(item_->self, view_.get(), &view, &out);
    if (status == HX_OK) return out;
    const Error e = plugin_error(*item_, status);
    throw Error(e.kind(), fmt::format("{}, at {}", e.what(), at.str()), e.span(), e.notes());
  }

 private:
  ItemPtr item_;
  AttributeMap arguments_;
  AttributeView view_;
};

Finding answers(const CheckedPredicate& holds, const std::vector<Point>& all) {
  std::set<std::string> names;
  size_t yes = 0;
  for (const Point& at : all) {
    const int32_t answer = holds(at, &names);
    if (answer != 0 && answer != 1)
      return {Outcome::Failed, fmt::format("it answers {} at {}", answer, at.str()), "1 is yes, 0 is no"};
    yes += static_cast<size_t>(answer);
  }
  std::string asks;
  for (const std::string& name : names) asks += (asks.empty() ? "; asks for " : ", ") + name;
  if (yes == 0 || yes == all.size())
    return {Outcome::Noted, fmt::format("{} at every one of {} points{}", yes ? "yes" : "no", all.size(), asks),
            "an 'if' with these arguments always takes one branch, as far as was tried"};
  return {Outcome::Passed, fmt::format("yes at {} of {} points{}", yes, all.size(), asks), ""};
}

Finding pure(const Item& item, const CheckedPredicate& holds, const std::vector<Point>& all) {
  if (item.flags & HX_BY_CLOCK)
    return {Outcome::Passed, "it declares that its answer depends on more than the run", ""};
  std::vector<int32_t> once;
  for (const Point& at : all) once.push_back(holds(at));
  for (size_t i = all.size(); i-- > 0;)
    if (holds(all[i]) != once[i])
      return {Outcome::Failed,
              fmt::format("at {} it answers {}, and at a second call {}", all[i].str(), once[i] ? "yes" : "no",
                          once[i] ? "no" : "yes"),
              "keep no state between calls: a resumed run calls it again; or register it with HX_BY_CLOCK"};
  return {};
}

Finding on_threads(const Item& item, const CheckedPredicate& holds, const std::vector<Point>& all) {
  std::vector<int32_t> expected;
  for (const Point& at : all) expected.push_back(holds(at));
  const bool by_clock = (item.flags & HX_BY_CLOCK) != 0;
  const std::string error = on_four_threads(20, [&] {
    for (size_t i = 0; i < all.size(); ++i)
      if (holds(all[i]) != expected[i] && !by_clock)
        throw Error(ErrorKind::Plugin, "another answer than on one thread");
  });
  if (error.empty()) return {};
  return {Outcome::Failed, error, "runs on several threads share the predicate: keep no mutable state"};
}

}  // namespace

void check_predicate(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const CheckedPredicate holds(item, arguments_to_try(*item));
  const std::vector<Point> all = points();
  const bool always = attempt(
      log, "answers, also before anything is measured", [&] { return answers(holds, all); },
      "answer at every step: metric() gives false while there is no value");
  if (!always) return;
  attempt(log, "depends on the run alone", [&] { return pure(*item, holds, all); });
  attempt(log, "accepts the values that its ranges allow", [&] {
    return at_the_ends(*item, [&](const AttributeMap& arguments) -> std::string {
      const CheckedPredicate at_an_end(item, arguments);
      for (const Point& at : all) at_an_end(at);
      return "";
    });
  });
  attempt(log, "threads", [&] { return on_threads(*item, holds, all); });
  attempt(log, "many calls", [&] { return many_calls(settings, [&] { holds(all[100]); }); });
}

}  // namespace harmonics::engine
