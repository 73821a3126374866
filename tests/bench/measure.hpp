// Timing of steps: every iteration is timed alone, so that what neighbours on the machine do can be told apart.
#pragma once

#include <chrono>
#include <type_traits>

#include <benchmark/benchmark.h>

#include "engine/bound/profile.hpp"

namespace harmonics::bench {

// What one iteration does; zero: not said.
struct Work {
  double samples = 0, flops = 0;
  double bytes = 0;     // least traffic with memory
  double resident = 0;  // size of what that traffic goes over: the bandwidth is measured on as much; 0: bytes
  int threads = 1;
};

// `body` may return the number of the batch it worked on.
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

void measure_yardsticks(const Work& work);
void report(benchmark::State& state, const Work& work, const Times& times);

// Runs `body` as the loop of `state` and reports its best time (see Times): "samples/s" ("median": at the median
// iteration), "GFLOP/s" and its ratio to the peak where flops are said, "GB/s" and its ratio to the bandwidth where
// bytes are. The yardsticks are measured right before and right after; the better counts.
template <typename Body>
void measure(benchmark::State& state, const Work& work, const Body& body) {
  body();  // what is made at first use is not a step's cost
  measure_yardsticks(work);
  Times times;
  for (auto _ : state) time_into(times, body);
  report(state, work, times);
}

// Parses the command line, prints what the yardsticks say, runs. `add` registers the benchmarks.
int run_benchmarks(int argc, char** argv, void (*add)());

}  // namespace harmonics::bench
