// PromptBudget: limits the prompt tokens that a step processes in addition to the tokens of running texts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace harmonics::engine {

// Adapts the limit so that a step with prompts takes at most about three times as long as one without, which keeps the
// latency of running texts low. Results do not depend on how a prompt is divided.
class PromptBudget {
 public:
  // Returns the limit while `writing` texts are running. Without running texts it is kMost, so that further new texts
  // do not wait long.
  int64_t tokens(size_t writing) const;
  // Records the duration of a step.
  void took(size_t writing, int64_t prompts, double seconds);

  static constexpr int64_t kLeast = 8, kMost = 128;

 private:
  int64_t beside_ = 32;  // current limit with running texts
  double plain_ = 0;     // average seconds of a step without prompts; 0: unknown
};

}  // namespace harmonics::engine
