// Timing of steps. Every iteration is timed separately, so that disturbances by other load are recognised.
#pragma once

#include <chrono>
#include <functional>
#include <type_traits>

#include <benchmark/benchmark.h>

#include "engine/bound/profile.hpp"

namespace harmonics::engine::bench {

// The work of one iteration; 0: unknown.
struct Work {
  double samples = 0, flops = 0;
  double bytes = 0;     // minimum memory traffic
  double resident = 0;  // size of the memory that this traffic covers: bandwidth is measured on the same size; 0:
                        // bytes
  int threads = 1;
  // For training. The lower bound of a step's time is the larger of its FLOPs at peak rate and an in-place update of
  // its weights and moments, read and written once: 8 bytes per weight without moments, 24 with two. SGD also reads
  // each weight in the forward pass: 12 bytes.
  int moments = -1;  // 0: SGD, 2: Adam; otherwise no lower bound
  double weights = 0;
  double moved = 1;  // fraction of those bytes, if moments have fewer bits
};

// `body` may return the index of its batch.
template <typename Body>
void time_into(Times& times, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  size_t batch = 0;
  if constexpr (std::is_void_v<decltype(body())>)
    body();
  else
    batch = body();
  times.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), batch);
}

void measure_peaks(const Work& work);
void report(benchmark::State& state, const Work& work, const Times& times);

// Runs `body` as the loop of `state` and reports its best time (see Times): "samples/s" ("median": at the median
// iteration), "GFLOP/s" and its ratio to the peak if flops are given, "GB/s" and its ratio to the bandwidth if bytes
// are given, and, with weights, the fraction of the lower bound ("of_floor") and of both of its terms ("of_update",
// "of_peak"). Peak and bandwidth are measured right before and after; the better value counts.
template <typename Body>
void measure(benchmark::State& state, const Work& work, const Body& body) {
  body();  // excludes initialisation on first use
  measure_peaks(work);
  Times times;
  for (auto _ : state) time_into(times, body);
  report(state, work, times);
}

// Parses the command line, prints peak and bandwidth, and runs the benchmarks that `add` registers.
int run_benchmarks(int argc, char** argv, const std::function<void()>& add);

}  // namespace harmonics::engine::bench
