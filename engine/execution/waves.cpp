#include "engine/execution/waves.hpp"

#include <algorithm>

namespace harmonics::engine {

namespace {

// Nanoseconds of work worth passing to another thread; many times the cost of passing it.
constexpr double kWorthSharing = 4000;

bool overlap(const MemorySpan& a, const MemorySpan& b) { return a.begin < b.end && b.begin < a.end; }

bool conflict(const StepAccess& a, const StepAccess& b) {
  for (const MemorySpan& x : a.spans)
    for (const MemorySpan& y : b.spans)
      if ((x.written || y.written) && overlap(x, y)) return true;
  return false;
}

class Maker {
 public:
  Maker(const std::vector<StepShape>& steps, const std::vector<StepAccess>& access) : steps_(steps), access_(access) {}

  Waves run(size_t rest) {
    add_range(0, rest);
    waves_.rest = waves_.phases.size();
    add_range(rest, steps_.size());
    return std::move(waves_);
  }

 private:
  void add_range(size_t step, size_t end) {
    wave_.clear();
    for (; step < end; ++step) {
      if (!may_join(step)) close();
      wave_.push_back(step);
    }
    close();
  }

  bool may_join(size_t step) const {
    return std::all_of(wave_.begin(), wave_.end(), [&](size_t other) {
      return !access_[step].alone && !access_[other].alone && steps_[step].context != steps_[other].context &&
             !conflict(access_[step], access_[other]);
    });
  }

  void close() {
    uint32_t phases = 0;
    for (size_t step : wave_) phases = std::max(phases, steps_[step].phases);
    for (uint32_t phase = 0; phase < phases; ++phase) add_phase(phase);
    wave_.clear();
  }

  void add_phase(uint32_t phase) {
    WavePhase p{static_cast<uint32_t>(waves_.jobs.size()), 0, false, false};
    double all = 0, longest = 0;
    for (size_t step : wave_) {
      if (phase >= steps_[step].phases) continue;
      const uint32_t parts = steps_[step].parts[phase];
      for (uint32_t part = 0; part < parts; ++part) waves_.jobs.push_back({static_cast<uint32_t>(step), phase, part});
      p.parallel = p.parallel || parts > 1;
      p.turns = p.turns || access_[step].turns;
      all += access_[step].nanoseconds;
      longest = std::max(longest, access_[step].nanoseconds);
    }
    p.count = static_cast<uint32_t>(waves_.jobs.size()) - p.first;
    p.parallel = p.parallel || all - longest >= kWorthSharing;
    if (p.parallel) spread(p);
    waves_.phases.push_back(p);
  }

  // Interleaves the steps, so that every contiguous range of jobs has a similar share of each step.
  void spread(const WavePhase& p) {
    const auto place = [&](const WaveJob& j) { return (j.part + 0.5) / steps_[j.step].parts[j.phase]; };
    const auto first = waves_.jobs.begin() + p.first;
    std::stable_sort(first, first + p.count, [&](const WaveJob& a, const WaveJob& b) { return place(a) < place(b); });
  }

  const std::vector<StepShape>& steps_;
  const std::vector<StepAccess>& access_;
  std::vector<size_t> wave_;
  Waves waves_;
};

}  // namespace

Waves make_waves(const std::vector<StepShape>& steps, const std::vector<StepAccess>& access, size_t rest) {
  return Maker(steps, access).run(rest);
}

}  // namespace harmonics::engine
