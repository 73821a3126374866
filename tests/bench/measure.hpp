// Timing of steps: every iteration is timed separately, so that disturbances by other load can be recognised.
#pragma once

#include <chrono>
#include <functional>
#include <type_traits>

#include <benchmark/benchmark.h>

#include "engine/bound/profile.hpp"

namespace harmonics::engine::bench {

// The work of one iteration; zero: unknown.
struct Work {
  double samples = 0, flops = 0;
  double bytes = 0;     // minimum memory traffic
  double resident = 0;  // size of the memory that this traffic covers: bandwidth is measured on the same size; 0:
                        // bytes
  int threads = 1;
  // Training. The floor of a step is the longer of its FLOPs at the peak, and of the bytes of its weights and moments
  // at the rate of an in-place update of as many of them (read and written once: 8 bytes a weight with no moments, 24
  // with two; SGD also reads each weight in the forward pass, 12).
  int moments = -1;  // 0: SGD, 2: Adam; otherwise no floor
  double weights = 0;
  double moved = 1;  // of those bytes, where moments have fewer bits: the update is of as many bytes
};

// `body` may return the number of its batch.
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
// are, and with weights the fraction of the floor ("of_floor") and of both of its sides ("of_update", "of_peak"). Peak
// and bandwidth are measured right before and right after; the better value counts.
template <typename Body>
void measure(benchmark::State& state, const Work& work, const Body& body) {
  body();  // excludes initialisation on first use
  measure_peaks(work);
  Times times;
  for (auto _ : state) time_into(times, body);
  report(state, work, times);
}

// Parses the command line, prints peak and bandwidth, runs. `add` registers the benchmarks.
int run_benchmarks(int argc, char** argv, const std::function<void()>& add);

}  // namespace harmonics::engine::bench
