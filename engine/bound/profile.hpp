// Profiles a step: the measured time of each part of its plan, and its roofline time on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/bound/prepared_step.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics::engine {

struct ProfiledStep {  // one step of the plan
  size_t index = 0;
  std::string what, kernel, scope, origin;
  uint32_t parts = 1;
  double seconds = 0, median = 0;  // best (see Times); of the median run
  double flops = 0, bytes = 0;     // required work; see Work
  double floor = 0;                // roofline: least time for this work
};

struct Profile {
  uint64_t runs = 0;
  double seconds = 0, median = 0;  // a whole step, without inner clock readings: best, median
  double floor = 0;                // of all steps of the plan together
  double kernels = 0;              // sum of their best times
  double engine = 0;               // the same plan with empty kernels
  bool by_device = false;          // steps were timed by the device's clock
  double waiting = 0;      // subtracted from each step's time: by the device's clock the time of an idle step, else
                           // see MachinePeaks
  double allocations = 0;  // per step; -1: not counted
  std::vector<ProfiledStep> steps;
  std::vector<PlanTimes> trace;  // of the last runs
};

struct ProfileSettings {
  uint64_t runs = 0;                      // 0: as many as take about a second
  uint64_t traced = 0;                    // number of last runs kept with all their parts
  std::function<uint64_t()> allocations;  // returns the number of allocations so far; absent: not counted
};

// Measures the step. Runs without and with inner clock readings alternate.
Profile profile(PreparedStep& step, MachinePeaks& peaks, const ProfileSettings& settings);

// Returns the roofline time of all steps of a plan together.
double floor_of(const Executable& executable, MachinePeaks& peaks);

// Times of one step on several batches. The time may depend on the data (zeros can be skipped), so the minimum of all
// runs would be that of one favourable batch.
class Times {
 public:
  void add(double seconds, size_t batch = 0);
  size_t count() const { return seconds_.size(); }
  double best() const;               // the mean over batches of the fastest run of each
  double at(double quantile) const;  // of all runs

 private:
  std::vector<double> seconds_;
  std::vector<double> fastest_;  // by batch; 0: not yet run
};

}  // namespace harmonics::engine
