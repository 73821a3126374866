#include "engine/cli/run/run_figures.hpp"

#include <cstdio>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "engine/execution/product_rates.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr double kWorthPeak = 1;  // seconds of a run, before the processor's peak is measured for it

// Devices that are this processor; others have peaks of their own.
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

RunFigures::RunFigures(const Options& options) : tokens_(options.tokens_of_sample), threads_(options.run.threads) {
  if (threads_ <= 0) threads_ = static_cast<int>(std::thread::hardware_concurrency());
  if (!is_processor(options.run.device)) threads_ = 0;
}

Figures RunFigures::at(double samples_per_second, double products, double seconds) {
  Figures figures;
  figures.tokens_per_second = samples_per_second * static_cast<double>(tokens_);
  figures.resident = resident_bytes();
  if (threads_ <= 0 || products <= 0) return figures;
  if (peak_ < 0 && (tokens_ > 0 || seconds > kWorthPeak)) peak_ = kept_peak(threads_);
  if (peak_ > 0) figures.peak_share = products * samples_per_second / peak_;
  return figures;
}

void add_figures(boost::json::object& to, const Figures& figures) {
  if (figures.tokens_per_second > 0) to["tokens_per_second"] = figures.tokens_per_second;
  if (figures.peak_share >= 0) to["peak_share"] = figures.peak_share;
  if (figures.resident > 0) to["resident_bytes"] = figures.resident;
}

}  // namespace harmonics::engine::cli
