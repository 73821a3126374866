// Settings for batches whose loss is not finite or far above that of the batches before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace harmonics::engine {

struct LossGuardSettings {
  double deviations = 0;  // limit in standard deviations above the mean of the last steps; 0: finite losses pass
  int64_t patience = 1;   // the run ends at this many such batches in a row
  bool returns = false;   // it returns to the weights of the last checkpoint instead
  std::string folder;     // receives a file for each such batch; "": none is written

  // Returns "deviations=6, patience=3, then=checkpoint".
  std::string str() const;
  friend bool operator==(const LossGuardSettings&, const LossGuardSettings&) = default;
};

// Parses "deviations=6, patience=3, then=stop". `patience` is 3 by default, `then` is stop or checkpoint. Throws the
// errors of parse_named_settings().
LossGuardSettings parse_loss_guard(std::string_view text);

}  // namespace harmonics::engine
