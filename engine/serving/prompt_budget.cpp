#include "engine/serving/prompt_budget.hpp"

#include <algorithm>

namespace harmonics::engine {

// Together with one token per text that is being written, the budget must fit into the rows of one run.
int64_t PromptBudget::tokens(size_t writing) const {
  if (writing == 0) return kMost;
  return std::clamp(kMost - static_cast<int64_t>(writing), kLeast, beside_);
}

void PromptBudget::took(size_t writing, int64_t prompts, double seconds) {
  if (writing == 0) return;
  if (prompts == 0) {
    plain_ = plain_ > 0 ? 0.8 * plain_ + 0.2 * seconds : seconds;
    return;
  }
  if (plain_ <= 0) return;
  if (seconds > 3 * plain_)
    beside_ = std::max(kLeast, beside_ / 2);
  else if (seconds < 1.5 * plain_ && prompts >= beside_)
    beside_ = std::min(kMost, beside_ * 2);
}

}  // namespace harmonics::engine
