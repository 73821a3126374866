// ModelLimits: limits of the resources that a flow may use before it runs. Flows may come from untrusted authors.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <harmonics/budget.hpp>

namespace harmonics::engine {

struct ModelLimits {
  uint64_t steps = 1'000'000;  // operations of one traced program
  uint64_t weights = 0;        // bytes of weights, statistics and moments; 0: the machine's memory
  uint64_t seconds = 600;      // to compile one program

  Budget for_steps() const;
  Budget for_weights() const;
};

// Parses any of "steps=2000000,weights=64G,seconds=60". Throws ErrorKind::Usage.
ModelLimits parse_model_limits(const std::string& text);

// Enforces ModelLimits::seconds, counted from construction.
class CompileTime {
 public:
  explicit CompileTime(const ModelLimits& limits);
  // Throws ErrorKind::Shape if the limit is exceeded. `doing` describes the work for the message.
  void check(const std::string& doing);

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  Budget seconds_;
};

}  // namespace harmonics::engine
