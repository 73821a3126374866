#include "tests/bench/measure.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/execution/machine.hpp"
#include "tests/bench/rows.hpp"

namespace harmonics::engine::bench {

namespace {

double resident(const Work& work) { return work.resident > 0 ? work.resident : work.bytes; }

// The best peak measured for this number of threads and this size; kept for the whole run.
double best_peak(int threads) {
  static std::map<int, double> seen;
  return seen[threads] = std::max(seen[threads], peak_flops(threads));
}
double best_bandwidth(size_t bytes, int threads) {
  static std::map<std::pair<size_t, int>, double> seen;
  double& bandwidth = seen[{bytes, threads}];
  return bandwidth = std::max(bandwidth, read_bandwidth(bytes, threads));
}

std::string peaks() {
  constexpr size_t kL2 = size_t{256} << 10, kDram = size_t{128} << 20;
  std::string text = peak_instructions();
  for (int threads : {1, 2})
    text += fmt::format("; {} thread{}: {:.1f} GFLOP/s, reads {:.1f} GB/s from L2, {:.1f} from DRAM", threads,
                        threads > 1 ? "s" : "", best_peak(threads) / 1e9,
                        best_bandwidth(kL2 * static_cast<size_t>(threads), threads) / 1e9,
                        best_bandwidth(kDram * static_cast<size_t>(threads), threads) / 1e9);
  return text;
}

}  // namespace

void measure_peaks(const Work& work) {
  if (work.flops > 0) best_peak(work.threads);
  if (work.bytes > 0) best_bandwidth(static_cast<size_t>(resident(work)), work.threads);
}

void report(benchmark::State& state, const Work& work, const Times& times) {
  const double best = times.best(), median = times.at(0.5);
  state.counters["us"] = best * 1e6;
  if (work.samples > 0) {
    state.counters["samples/s"] = work.samples / best;
    state.counters["median"] = work.samples / median;
  }
  if (work.flops > 0) {
    state.counters["GFLOP/s"] = work.flops / best / 1e9;
    const double peak = best_peak(work.threads);
    if (peak > 0) state.counters["of_peak"] = work.flops / best / peak;
  }
  if (work.bytes > 0) {
    state.counters["GB/s"] = work.bytes / best / 1e9;
    state.counters["of_bandwidth"] =
        work.bytes / best / best_bandwidth(static_cast<size_t>(resident(work)), work.threads);
  }
}

int run_benchmarks(int argc, char** argv, void (*add)()) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    add();
    benchmark::AddCustomContext("peaks", peaks());
    benchmark::AddCustomContext(
        "mnist", mnist_folder().empty()
                     ? "absent: drawn digits take its place; HARMONICS_TEST_DATA names the folder above mnist/"
                     : "its training set");
    benchmark::RunSpecifiedBenchmarks();
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}

}  // namespace harmonics::engine::bench
