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

// Waits until the threads of this work have cores of their own, at most some seconds.
void take_cores(const Work& work);
// Sets the fractions that measure() describes. `seconds` runs the work for some milliseconds and returns its best time.
void compare(benchmark::State& state, const Work& work, const std::function<double()>& seconds);
void report(benchmark::State& state, const Work& work, const Times& times);

// Runs `body` as the loop of `state` and reports its best time (see Times): "samples/s" ("median": at the median
// iteration), "GFLOP/s" and its ratio to the best peak of the run if flops are given, and "GB/s" if bytes are given.
// Then body alternates with reads of as much memory, and with in-place updates of as many weights. These rates depend
// on where the hypervisor puts the threads, which changes within seconds, so that each pair is compared by itself. The
// medians are "of_bandwidth" and, with weights, "of_update" and "of_move", which is without the arithmetic of AdamW.
// "of_floor", the fraction of the lower bound, is the larger of "of_update" and "of_peak".
template <typename Body>
void measure(benchmark::State& state, const Work& work, const Body& body) {
  body();  // excludes initialisation on first use
  take_cores(work);
  Times times;
  for (auto _ : state) time_into(times, body);
  report(state, work, times);
  compare(state, work, [&] {
    constexpr double kLong = 4e-3;
    Times some;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kLong);
    do time_into(some, body);
    while (std::chrono::steady_clock::now() < end || some.count() < 2);
    return some.best();
  });
}

// Parses the command line, prints peak and bandwidth, and runs the benchmarks that `add` registers.
int run_benchmarks(int argc, char** argv, const std::function<void()>& add);

}  // namespace harmonics::engine::bench
