// Further rates of a run: its share of the processor's peak, and memory.
#pragma once

#include <cstdint>

#include <boost/json/fwd.hpp>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

struct RunRates {
  double tokens_per_second = 0;  // 0: samples have no tokens
  double peak_share = -1;        // share of the measured FLOP rate of the processor; -1: unknown
  uint64_t resident = 0;         // resident bytes of this process; 0: unknown
};

// Return the current and the peak resident bytes of this process; 0 if unknown.
uint64_t resident_bytes();
uint64_t most_resident_bytes();

// Computes the rates of one run. Not thread-safe.
class RateMeter {
 public:
  explicit RateMeter(const Options& options);
  // `products` is the FLOP of matrix products per sample, `seconds` the duration of the run. The peak is measured in
  // the first call for a language model, otherwise once the run exceeds a second; until then the share is unknown.
  RunRates at(double samples_per_second, double products, double seconds);

 private:
  int64_t tokens_;
  int threads_;       // 0: the run uses another device
  double peak_ = -1;  // FLOP per second; -1: not measured yet
};

// Adds the fields "tokens_per_second", "peak_share" and "resident_bytes".
void add_rates(boost::json::object& to, const RunRates& rates);

}  // namespace harmonics::engine::cli
