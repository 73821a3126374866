// ModelLimits: what a flow may take until it runs. Flows are texts that others may have written.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <harmonics/budget.hpp>

namespace harmonics {

struct ModelLimits {
  uint64_t steps = 1'000'000;  // operations of one program, as it is traced
  uint64_t weights = 0;        // bytes of weights, statistics and moments; 0: as much memory as the machine has
  uint64_t seconds = 600;      // until one program is compiled

  Budget for_steps() const;
  Budget for_weights() const;
};

// "steps=2000000,weights=64G,seconds=60", each of them or some; throws ErrorKind::Usage.
ModelLimits parse_model_limits(const std::string& text);

// The time that ModelLimits::seconds gives, from the object's making on.
class CompileTime {
 public:
  explicit CompileTime(const ModelLimits& limits);
  // Throws ErrorKind::Shape when it is over: `doing` was what took the rest of it.
  void check(const std::string& doing);

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  Budget seconds_;
};

}  // namespace harmonics
