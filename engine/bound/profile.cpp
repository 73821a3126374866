#include "engine/bound/profile.hpp"

#include <algorithm>
#include <chrono>

#include "engine/execution/work.hpp"

namespace harmonics::engine {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr uint64_t kWarm = 3, kLeast = 10, kMost = 50000;

// Returns the measured time of one clock reading, which is part of each step's time.
double clock_cost() {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const auto start = Clock::now();
    least = std::min(least, seconds_since(start));
  }
  return least;
}

template <typename Body>
double time_of(const Body& body) {
  const auto start = Clock::now();
  body();
  return seconds_since(start);
}

// Returns how many pairs of a plain and a timed run take about a second.
uint64_t runs_of_a_second(PreparedStep& step) {
  const double one = time_of([&] { step.run(); });
  return std::clamp(static_cast<uint64_t>(0.5 / std::max(one, 1e-9)), kLeast, kMost);
}

std::vector<ProfiledStep> describe(const Executable& executable, MachinePeaks& peaks) {
  std::vector<ProfiledStep> steps;
  for (const PlanStep& s : executable.steps()) {
    ProfiledStep p{.index = steps.size(),
                   .what = s.what,
                   .kernel = s.kernel,
                   .scope = s.scope,
                   .origin = s.origin,
                   .parts = s.parts,
                   .bytes = 2.0 * static_cast<double>(s.bytes)};
    if (s.node != UINT32_MAX) {
      const Work work = work_of(executable.program(), executable.program().nodes[s.node]);
      p.flops = work.flops();
      p.bytes = work.bytes;
    }
    p.floor = peaks.floor(p.flops, p.bytes);
    steps.push_back(std::move(p));
  }
  return steps;
}

double fastest_empty(PreparedStep& step) {
  double least = 1;
  for (int i = 0; i < 200; ++i) {
    step.next();
    least = std::min(least, time_of([&] { step.step().run_empty(); }));
  }
  return least;
}

}  // namespace

void Times::add(double seconds, size_t batch) {
  seconds_.push_back(seconds);
  if (batch >= fastest_.size()) fastest_.resize(batch + 1);
  double& fastest = fastest_[batch];
  fastest = fastest > 0 ? std::min(fastest, seconds) : seconds;
}

double Times::best() const {
  double sum = 0, batches = 0;
  for (double seconds : fastest_) {
    sum += seconds;
    batches += seconds > 0;
  }
  if (batches == 0) return 0;
  return std::min(sum / batches,
                  at(0.5));  // with few runs per batch, other load may slow even the fastest
}

double Times::at(double quantile) const {
  std::vector<double> sorted = seconds_;
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(quantile * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

double floor_of(const Executable& executable, MachinePeaks& peaks) {
  double sum = 0;
  for (const ProfiledStep& s : describe(executable, peaks)) sum += s.floor;
  return sum;
}

Profile profile(PreparedStep& step, MachinePeaks& peaks, const ProfileSettings& settings) {
  Profile result;
  describe(step.executable(), peaks);  // measures the rooflines before the runs; they are measured again after them
  for (uint64_t i = 0; i < kWarm; ++i) step.run();
  result.runs = settings.runs ? settings.runs : runs_of_a_second(step);

  const size_t n = step.executable().steps().size();
  Times whole;
  std::vector<Times> each(n);
  PlanTimes times;
  uint64_t allocations = 0;
  for (uint64_t run = 0; run < result.runs; ++run) {
    size_t batch = step.next();
    const uint64_t before = settings.allocations ? settings.allocations() : 0;
    const double seconds = time_of([&] { step.step().run(); });
    if (settings.allocations) allocations += settings.allocations() - before;
    whole.add(seconds, batch);

    batch = step.next();
    times.wants_parts = run + settings.traced >= result.runs;
    step.step().run_timed(times);
    for (size_t i = 0; i < n; ++i)
      each[i].add(static_cast<double>(times.stamps[i + 1] - times.stamps[i]) * 1e-9, batch);
    if (times.wants_parts) result.trace.push_back(times);
  }
  peaks.again();
  result.steps = describe(step.executable(), peaks);
  result.seconds = whole.best();
  result.median = whole.at(0.5);
  result.by_device = times.by_device;
  result.waiting = times.by_device ? static_cast<double>(times.nothing) * 1e-9 : peaks.waiting();
  const double beside = times.by_device ? result.waiting : clock_cost() + result.waiting;
  for (size_t i = 0; i < n; ++i) {
    ProfiledStep& s = result.steps[i];
    s.seconds = std::max(0.0, each[i].best() - beside);
    s.median = std::max(0.0, each[i].at(0.5) - beside);
    result.kernels += s.seconds;
    result.floor += s.floor;
  }
  result.engine = fastest_empty(step);
  result.allocations = settings.allocations ? static_cast<double>(allocations) / static_cast<double>(result.runs) : -1;
  return result;
}

}  // namespace harmonics::engine
