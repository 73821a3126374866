#include "engine/cli/run/trace.hpp"

#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr int kProcess = 1;
constexpr uint32_t kPlanRow = 1000;  // row of the plan's steps, apart from those of the threads

class Trace {
 public:
  explicit Trace(uint64_t origin) : origin_(origin) {}

  void name_row(uint32_t row, const std::string& name) {
    events_.push_back(json::object{
        {"name", "thread_name"}, {"ph", "M"}, {"pid", kProcess}, {"tid", row}, {"args", json::object{{"name", name}}}});
  }
  void event(const std::string& name, const char* category, uint32_t row, uint64_t begin, uint64_t end,
             json::object arguments) {
    events_.push_back(json::object{{"name", name},
                                   {"cat", category},
                                   {"ph", "X"},
                                   {"pid", kProcess},
                                   {"tid", row},
                                   {"ts", microseconds(begin - origin_)},
                                   {"dur", microseconds(end - begin)},
                                   {"args", std::move(arguments)}});
  }
  std::string text() && {
    return json::serialize(json::object{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events_)}});
  }

 private:
  static double microseconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; }
  uint64_t origin_;
  json::array events_;
};

}  // namespace

std::string trace_json(const Profile& profile) {
  Trace trace(profile.trace.empty() ? 0 : profile.trace.front().stamps.front());
  uint32_t threads = 0;
  for (const PlanTimes& run : profile.trace)
    for (const PlanTimes::Part& part : run.parts) threads = std::max(threads, part.thread + 1);
  trace.name_row(kPlanRow, "plan");
  for (uint32_t i = 0; i < threads; ++i) trace.name_row(i, fmt::format("thread {}", i));
  for (size_t run = 0; run < profile.trace.size(); ++run) {
    const PlanTimes& times = profile.trace[run];
    trace.event(fmt::format("step {}", run), "step", kPlanRow, times.stamps.front(), times.stamps.back(), {});
    for (size_t i = 0; i < profile.steps.size(); ++i) {
      const ProfiledStep& s = profile.steps[i];
      trace.event(s.what, "plan", kPlanRow, times.stamps[i], times.stamps[i + 1],
                  {{"index", s.index},
                   {"kernel", s.kernel},
                   {"scope", s.scope},
                   {"origin", s.origin},
                   {"flops", s.flops},
                   {"bytes", s.bytes},
                   {"floor_us", s.floor * 1e6}});
    }
    for (const PlanTimes::Part& part : times.parts)
      trace.event(profile.steps[part.step].what, "part", part.thread, part.begin, part.end,
                  {{"index", part.step}, {"phase", part.phase}, {"part", part.part}});
  }
  return std::move(trace).text();
}

}  // namespace harmonics::engine::cli
