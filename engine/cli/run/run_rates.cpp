#include "engine/cli/run/run_rates.hpp"

#include <cstdio>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "engine/execution/product_rates.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr double kWorthPeak = 1;  // minimum seconds of a run to measure the processor's peak

// Returns whether the device is the processor. Other devices have different peaks.
bool is_processor(const std::string& device) { return device == "cpu" || device == "reference"; }

}  // namespace

uint64_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (!file) return 0;
  unsigned long all = 0, pages = 0;
  const int read = std::fscanf(file, "%lu %lu", &all, &pages);
  std::fclose(file);
  return read == 2 ? uint64_t{pages} * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

uint64_t most_resident_bytes() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

RateMeter::RateMeter(const Options& options) : tokens_(options.tokens_of_sample), threads_(options.run.threads) {
  if (threads_ <= 0) threads_ = static_cast<int>(std::thread::hardware_concurrency());
  if (!is_processor(options.run.device)) threads_ = 0;
}

RunRates RateMeter::at(double samples_per_second, double products, double seconds) {
  RunRates rates;
  rates.tokens_per_second = samples_per_second * static_cast<double>(tokens_);
  rates.resident = resident_bytes();
  if (threads_ <= 0 || products <= 0) return rates;
  if (peak_ < 0 && (tokens_ > 0 || seconds > kWorthPeak)) peak_ = kept_peak(threads_);
  if (peak_ > 0) rates.peak_share = products * samples_per_second / peak_;
  return rates;
}

void add_rates(boost::json::object& to, const RunRates& rates) {
  if (rates.tokens_per_second > 0) to["tokens_per_second"] = rates.tokens_per_second;
  if (rates.peak_share >= 0) to["peak_share"] = rates.peak_share;
  if (rates.resident > 0) to["resident_bytes"] = rates.resident;
}

}  // namespace harmonics::engine::cli
