// RunRates beside those that a run measures itself: its rate against the processor's peak, and memory.
#pragma once

#include <cstdint>

#include <boost/json/fwd.hpp>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

struct RunRates {
  double tokens_per_second = 0;  // 0: samples have no tokens
  double peak_share = -1;        // of the multiply-adds that the processor has measured; -1: unknown
  uint64_t resident = 0;         // bytes of this process in memory; 0: unknown
};

// Bytes of this process in memory now, and at most so far; 0: unknown.
uint64_t resident_bytes();
uint64_t most_resident_bytes();

// Reads the rates of one run. Not thread-safe.
class RateMeter {
 public:
  explicit RateMeter(const Options& options);
  // `products`: FLOP of matrix products per sample; `seconds`: of the run. The peak is measured at the first call for
  // a language model, or for a run of more than a second; before that its share is unknown.
  RunRates at(double samples_per_second, double products, double seconds);

 private:
  int64_t tokens_;
  int threads_;       // 0: the run computes on another device
  double peak_ = -1;  // FLOP per second; -1: not measured yet
};

// The fields "tokens_per_second", "peak_share" and "resident_bytes" of JSON objects.
void add_rates(boost::json::object& to, const RunRates& rates);

}  // namespace harmonics::engine::cli
