// AnswerTimes: counts answered requests and measures their latency. Fixed memory; thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace harmonics::engine {

class AnswerTimes {
 public:
  using Clock = std::chrono::steady_clock;
  // Upper bounds of the histogram buckets in seconds. One further bucket counts longer times.
  static constexpr std::array<double, 12> kBuckets{0.0005, 0.001, 0.002, 0.004, 0.008, 0.016,
                                                   0.032,  0.064, 0.125, 0.25,  0.5,   1};

  struct Report {
    uint64_t requests = 0, samples = 0, not_finite = 0, refused = 0, failed = 0, batches = 0, queued = 0,
             queue_limit = 0;
    double requests_per_second = 0;  // like the percentiles, over the most recent requests
    std::optional<double> p50_ms, p99_ms;
    std::array<uint64_t, kBuckets.size() + 1> histogram{};
    double seconds = 0;  // sum over all requests
  };

  void answered(uint64_t samples, uint64_t not_finite, Clock::duration took);
  void refused();
  void failed();
  void batch();
  Report report() const;

 private:
  struct Answered {
    float seconds;
    Clock::time_point at;
  };
  mutable std::mutex mutex_;
  Report sums_;
  std::array<Answered, 1024> last_{};
};

}  // namespace harmonics::engine
