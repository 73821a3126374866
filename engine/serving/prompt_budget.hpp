// PromptBudget: how many tokens of prompts a step takes beside the tokens of texts that are being written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace harmonics::engine {

// A step with prompts may take three times as long as one without, so that clients that read do not wait long. Results
// do not depend on the division of a prompt.
class PromptBudget {
 public:
  // Where no text is being written, new ones still want their turn soon.
  int64_t tokens(size_t writing) const;
  // What a step took.
  void took(size_t writing, int64_t prompts, double seconds);

  static constexpr int64_t kLeast = 8, kMost = 128;

 private:
  int64_t beside_ = 32;  // running texts
  double plain_ = 0;     // seconds of a step without prompts, averaged; 0: not known
};

}  // namespace harmonics::engine
