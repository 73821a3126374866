// EpochHistory: reports of a run's epochs in bounded memory, however many epochs there are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/measure/cycle_report.hpp"

namespace harmonics::engine {

// Keeps every epoch until there are too many, then every second one, every fourth and so on. Always keeps the first
// and the last two (one of which may have ended before its validation).
class EpochHistory {
 public:
  static constexpr size_t kEpochs = 1024;
  static constexpr size_t kFigures = size_t{1} << 18;  // of all epochs together

  explicit EpochHistory(std::vector<EpochReport>& kept) : kept_(kept) {}

  // The reference is valid until the next call.
  EpochReport& add(EpochReport epoch);
  // Number of epochs closed, including those no longer kept.
  int64_t closed() const { return closed_; }
  int64_t stride() const { return stride_; }
  // `closed`, `stride`: of the history that `kept` comes from.
  void restore(std::vector<EpochReport> kept, int64_t closed, int64_t stride);

 private:
  bool full() const;
  void halve();

  std::vector<EpochReport>& kept_;
  int64_t closed_ = 0, stride_ = 1;
};

}  // namespace harmonics::engine
