// EpochHistory: reports of a run's epochs in bounded memory, however many epochs there are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/measure/cycle_report.hpp"

namespace harmonics {

// Keeps every epoch until there are too many, then every second one, every fourth and so on; always the first and the
// last two (of which one may be cut short before it was validated).
class EpochHistory {
 public:
  static constexpr size_t kEpochs = 1024;
  static constexpr size_t kFigures = size_t{1} << 18;  // of all epochs together

  explicit EpochHistory(std::vector<EpochReport>& kept) : kept_(kept) {}

  // The reference is valid until the next call.
  EpochReport& add(EpochReport epoch);
  // How many there were, those that are no longer kept included.
  int64_t closed() const { return closed_; }
  int64_t stride() const { return stride_; }
  // `closed`, `stride`: of the history these were kept by.
  void restore(std::vector<EpochReport> kept, int64_t closed, int64_t stride);

 private:
  bool full() const;
  void halve();

  std::vector<EpochReport>& kept_;
  int64_t closed_ = 0, stride_ = 1;
};

}  // namespace harmonics
