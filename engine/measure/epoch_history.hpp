// EpochHistory: reports of a run's epochs in bounded memory.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

// Returns the epoch whose validation has the smallest loss, of equal ones the first; null if none was validated. A loss
// that is not a number is larger than every other.
const EpochReport* best_of(const std::vector<EpochReport>& epochs);

// Keeps every epoch until there are too many, then every second one, every fourth and so on. Always keeps the first
// epoch, the best one so far, and the last two, because the validation of the last but one may still be missing.
class EpochHistory {
 public:
  static constexpr size_t kEpochs = 1024;
  static constexpr size_t kFigures = size_t{1} << 18;  // limit for all epochs together

  explicit EpochHistory(std::vector<EpochReport>& kept) : kept_(kept) {}

  // Adds an epoch. The reference is valid until the next call.
  EpochReport& add(EpochReport epoch);
  // Returns the number of epochs added, including dropped ones.
  int64_t closed() const { return closed_; }
  int64_t stride() const { return stride_; }
  // Restores a history from its epochs, closed() and stride().
  void restore(std::vector<EpochReport> kept, int64_t closed, int64_t stride);

 private:
  bool full() const;
  void halve();

  std::vector<EpochReport>& kept_;
  int64_t closed_ = 0, stride_ = 1;
};

}  // namespace harmonics::engine
