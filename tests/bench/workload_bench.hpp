// Registers workloads as benchmarks: "mlp_train/batch:64/threads:1", for every batch size and number of threads listed.
#pragma once

#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include "engine/execution/product_rates.hpp"
#include "engine/plugin/registry.hpp"
#include "tests/bench/measure.hpp"
#include "tests/bench/workload.hpp"

namespace harmonics::engine::bench {

inline void measure_workload(benchmark::State& state, const Workload& workload, int64_t batch, int threads,
                             Precision precision) {
  DeviceSettings settings{.precision = precision};
  settle_precision(settings, Registry::global(), false);
  WorkloadStep step(workload, batch, threads, settings);
  Work work{.samples = static_cast<double>(batch), .flops = step.flops(), .threads = threads};
  if (batch == 1) {  // every weight is used once: limited by bandwidth
    work.bytes = step.least_bytes();
    work.resident = static_cast<double>(workload.parameters) * sizeof(float);
  }
  work.moments = workload.moments;
  work.weights = static_cast<double>(workload.parameters);
  work.moved = workload.moved;
  measure(state, work, [&] { return step.run(); });
}

inline void add_workload(const std::string& name, Precision precision = Precision::fp32) {
  const Workload workload = read_workload(name);
  for (int64_t batch : workload.batches)
    for (int threads : workload.threads)
      benchmark::RegisterBenchmark(
          fmt::format("{}/batch:{}/threads:{}", name, batch, threads).c_str(),
          [=](benchmark::State& state) { measure_workload(state, workload, batch, threads, precision); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
}

// Removes `--precision=P` from the command line. Returns P, or "fp32".
inline std::string take_precision(int& argc, char** argv) {
  constexpr std::string_view kFlag = "--precision=";
  std::string found = "fp32";
  argc = static_cast<int>(std::remove_if(argv, argv + argc,
                                         [&](const char* word) {
                                           if (std::string_view(word).substr(0, kFlag.size()) != kFlag) return false;
                                           found = word + kFlag.size();
                                           return true;
                                         }) -
                          argv);
  return found;
}

}  // namespace harmonics::engine::bench
