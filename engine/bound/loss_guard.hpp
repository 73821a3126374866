// What becomes of a batch whose loss is not finite, or far above those before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace harmonics::engine {

struct LossGuardSettings {
  double deviations = 0;  // standard deviations above the mean of the last steps; 0: losses that are not finite only
  int64_t patience = 1;   // batches in a row; the last of them ends the run
  bool returns = false;   // instead, to the weights of the last checkpoint
  std::string folder;     // of a file for each such batch; "": none is written

  // "deviations=6, patience=3, then=checkpoint"
  std::string str() const;
  friend bool operator==(const LossGuardSettings&, const LossGuardSettings&) = default;
};

// "deviations=6, patience=3, then=stop": default patience 3; `then` is stop or checkpoint. Errors as in
// parse_named_settings().
LossGuardSettings parse_loss_guard(std::string_view text);

}  // namespace harmonics::engine
