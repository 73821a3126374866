#include "engine/serving/answer_times.hpp"

#include <algorithm>
#include <vector>

namespace harmonics::engine {

void AnswerTimes::answered(uint64_t samples, uint64_t not_finite, Clock::duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  const auto bucket =
      static_cast<size_t>(std::lower_bound(kBuckets.begin(), kBuckets.end(), seconds) - kBuckets.begin());
  const std::lock_guard<std::mutex> lock(mutex_);
  last_[sums_.requests % last_.size()] = {static_cast<float>(seconds), Clock::now()};
  ++sums_.requests;
  sums_.samples += samples;
  sums_.not_finite += not_finite;
  ++sums_.histogram[bucket];
  sums_.seconds += seconds;
}

void AnswerTimes::refused() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++sums_.refused;
}

void AnswerTimes::failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++sums_.failed;
}

void AnswerTimes::batch() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++sums_.batches;
}

AnswerTimes::Report AnswerTimes::report() const {
  std::vector<float> seconds;
  Report report;
  Clock::time_point oldest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    report = sums_;
    const auto n = std::min<uint64_t>(sums_.requests, last_.size());
    for (uint64_t i = 0; i < n; ++i) seconds.push_back(last_[i].seconds);
    if (n > 0) oldest = last_[n < last_.size() ? 0 : sums_.requests % last_.size()].at;
  }
  if (seconds.empty()) return report;
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return 1e3 * seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  report.p50_ms = at(0.5);
  report.p99_ms = at(0.99);
  const double since = std::chrono::duration<double>(Clock::now() - oldest).count();
  if (since > 0) report.requests_per_second = static_cast<double>(seconds.size()) / since;
  return report;
}

}  // namespace harmonics::engine
