// A step looked at closely: what each part of its plan costs, and what it could cost at best on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/bound/prepared_step.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics {

struct ProfiledStep {  // of the plan
  size_t index = 0;
  std::string what, kernel, scope;
  uint32_t parts = 1;
  double seconds = 0, median = 0;  // at best (see Times); of the median run
  double flops = 0, bytes = 0;     // what it has to do; see Work
  double floor = 0;                // the least time for that
};

struct Profile {
  uint64_t runs = 0;
  double seconds = 0, median = 0;  // a whole step, without a clock inside: at best, median
  double floor = 0;                // of all steps of the plan together
  double kernels = 0;              // their best times together
  double engine = 0;               // the same plan with empty kernels
  bool by_device = false;          // single steps were timed by the device's clock
  double waiting = 0;      // what each step's time is without: by the device's clock what passes where nothing is done,
                           // else see Yardsticks
  double allocations = 0;  // a step; -1: not counted
  std::vector<ProfiledStep> steps;
  std::vector<PlanTimes> trace;  // of the last runs
};

struct ProfileSettings {
  uint64_t runs = 0;                      // 0: about a second's
  uint64_t traced = 0;                    // how many of the last runs are kept with all their parts
  std::function<uint64_t()> allocations;  // so many were made until now; absent: not counted
};

// Runs without and with a clock take turns.
Profile profile(PreparedStep& step, Yardsticks& yardsticks, const ProfileSettings& settings);

// The least time for every step of a plan together.
double floor_of(const Executable& executable, Yardsticks& yardsticks);

// Times of one thing on several batches. What it takes may depend on the numbers (zeros can be skipped), so the fastest
// run of all would be that of the easiest batch.
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

}  // namespace harmonics
