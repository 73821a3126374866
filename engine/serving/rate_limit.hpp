// RateLimit: a token bucket with a capacity of one second.
#pragma once

#include <algorithm>
#include <chrono>

namespace harmonics::engine {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RateLimit(double a_second) : a_second_(a_second), left_(a_second) {}

  // Returns whether an event is allowed now, and counts it if so.
  bool take(Clock::time_point now) {
    left_ = std::min(a_second_, left_ + a_second_ * std::chrono::duration<double>(now - last_).count());
    last_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  const double a_second_;
  double left_;
  Clock::time_point last_{};
};

}  // namespace harmonics::engine
