#include "tests/bench/measure.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/execution/machine.hpp"
#include "tests/bench/rows.hpp"

namespace harmonics::engine::bench {

namespace {

double resident(const Work& work) { return work.resident > 0 ? work.resident : work.bytes; }

// Returns the best peak measured for this number of threads and this size, kept for the whole run.
double best_peak(int threads) {
  static std::map<int, double> seen;
  return seen[threads] = std::max(seen[threads], peak_flops(threads));
}
double best_bandwidth(size_t bytes, int threads) {
  static std::map<std::pair<size_t, int>, double> seen;
  double& bandwidth = seen[{bytes, threads}];
  return bandwidth = std::max(bandwidth, read_bandwidth(bytes, threads));
}

// In-place updates with the operations of plain SGD and of AdamW, and one with AdamW's traffic but only one
// multiplication and addition per number.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HM_WIDE \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3", "no-math-errno", "no-trapping-math")))
#else
#define HM_WIDE
#endif
HM_WIDE void update_sgd(float* __restrict w, float*, float*, size_t n, float g) {
  for (size_t i = 0; i < n; ++i) w[i] = w[i] - 1e-9f * g;
}
HM_WIDE void update_adamw(float* __restrict w, float* __restrict m, float* __restrict v, size_t n, float g) {
  for (size_t i = 0; i < n; ++i) {
    m[i] = m[i] + (g - m[i]) * 0.1f;
    v[i] = v[i] * 0.999f + 0.001f * (g * g);
    w[i] = w[i] * 0.99999f - 1e-9f * (m[i] / (__builtin_sqrtf(v[i]) / 0.5f + 1e-8f));
  }
}
HM_WIDE void move_adamw(float* __restrict w, float* __restrict m, float* __restrict v, size_t n, float g) {
  for (size_t i = 0; i < n; ++i) {
    m[i] = m[i] * 0.9f + g;
    v[i] = v[i] * 0.999f + g;
    w[i] = w[i] * 0.99999f + g;
  }
}
using Update = void (*)(float*, float*, float*, size_t, float);

// Returns the seconds of the fastest pass over `weights` on `threads` threads, each with its share.
double update_seconds(Update update, size_t weights, int threads) {
  const size_t share = weights / static_cast<size_t>(threads);
  std::vector<std::vector<float>> numbers(static_cast<size_t>(threads) * 3, std::vector<float>(share, 0.5f));
  std::vector<double> best(static_cast<size_t>(threads), 1e9);
  std::atomic<int> waiting{threads};
  const auto work = [&](size_t i) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    for (int pass = 0; pass < 100; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      update(numbers[3 * i].data(), numbers[3 * i + 1].data(), numbers[3 * i + 2].data(), share, 1e-3f);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best[i] = std::min(best[i], seconds);
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < best.size(); ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  return *std::max_element(best.begin(), best.end());
}
double best_update(Update update, size_t weights, int threads) {
  static std::map<std::tuple<Update, size_t, int>, double> seen;
  const double now = update_seconds(update, weights, threads);
  const auto [entry, is_new] = seen.emplace(std::tuple(update, weights, threads), now);
  return entry->second = std::min(entry->second, now);
}

void report_floor(benchmark::State& state, const Work& work, double best) {
  const auto weights = static_cast<size_t>(work.weights * work.moved);
  const bool moments = work.moments == 2;
  const double update = best_update(moments ? update_adamw : update_sgd, weights, work.threads) * (moments ? 1 : 1.5);
  const double move = moments ? best_update(move_adamw, weights, work.threads) : update;
  const double peak = best_peak(work.threads), products = peak > 0 ? work.flops / peak : 0;
  state.counters["of_floor"] = std::max(products, update) / best;
  state.counters["of_update"] = update / best;
  state.counters["of_move"] = move / best;
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
  if (work.weights > 0 && (work.moments == 0 || work.moments == 2)) report_floor(state, work, best);
  if (work.bytes > 0) {
    state.counters["GB/s"] = work.bytes / best / 1e9;
    state.counters["of_bandwidth"] =
        work.bytes / best / best_bandwidth(static_cast<size_t>(resident(work)), work.threads);
  }
}

int run_benchmarks(int argc, char** argv, const std::function<void()>& add) {
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
