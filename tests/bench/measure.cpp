#include "tests/bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/execution/executable.hpp"
#include "engine/execution/machine.hpp"
#include "engine/tensor/value.hpp"
#include "tests/bench/rows.hpp"

namespace harmonics::engine::bench {

namespace {

// Returns the best peak measured for this number of threads, kept for the whole run.
double best_peak(int threads) {
  static std::map<int, double> seen;
  return seen[threads] = std::max(seen[threads], peak_flops(threads));
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

// One pass over memory on all threads of a team, each over its own share: a read, or an update in place.
class Pass {
 public:
  virtual ~Pass() = default;
  // Returns the seconds of the fastest of a few passes, which take a few milliseconds in all.
  double seconds() {
    constexpr double kLong = 3e-3;
    double best = 1e9, spent = 0;
    for (int i = 0; i < 100 && (i < 2 || spent < kLong); ++i) {
      const auto start = std::chrono::steady_clock::now();
      const auto threads = static_cast<uint32_t>(team_->threads());
      team_->run(
          threads, [](const void* self, uint32_t part) { static_cast<const Pass*>(self)->run(part); }, this);
      const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best = std::min(best, now), spent += now;
    }
    return best;
  }

 protected:
  explicit Pass(int threads) : team_(make_team_executor(threads)) {}

 private:
  virtual void run(uint32_t part) const = 0;
  std::unique_ptr<Executor> team_;
};

class ReadPass final : public Pass {
 public:
  ReadPass(double bytes, int threads)
      : Pass(threads),
        share_(std::max<size_t>(static_cast<size_t>(bytes / threads) / 4096 * 4096, 4096)),
        memory_(share_ * static_cast<size_t>(threads)),
        times_(std::max<size_t>(1, (size_t{1} << 22) / memory_.bytes())) {
    std::memset(memory_.data(), 1, memory_.bytes());
  }
  // Returns the bytes that a pass reads: small memory several times, because starting the threads takes a microsecond.
  double bytes() const { return static_cast<double>(times_ * memory_.bytes()); }

 private:
  void run(uint32_t part) const override {
    for (size_t i = 0; i < times_; ++i) read_memory(static_cast<std::byte*>(memory_.data()) + part * share_, share_);
  }
  size_t share_;
  Storage memory_;
  size_t times_;
};

class UpdatePass final : public Pass {
 public:
  UpdatePass(Update update, size_t weights, int threads)
      : Pass(threads),
        update_(update),
        share_(weights / static_cast<size_t>(threads) / kLine * kLine + kLine),
        numbers_(3 * share_ * static_cast<size_t>(threads) * sizeof(float)) {
    std::fill_n(static_cast<float*>(numbers_.data()), numbers_.bytes() / sizeof(float), 0.5f);
  }

 private:
  static constexpr size_t kLine = 16;  // numbers
  void run(uint32_t part) const override {
    float* const w = static_cast<float*>(numbers_.data()) + 3 * share_ * part;
    update_(w, w + share_, w + 2 * share_, share_, 1e-3f);
  }
  Update update_;
  size_t share_;
  Storage numbers_;
};

// Returns the peaks of one and two threads; of two only if the filter admits them, because they may wait for a core.
std::string peaks() {
  const bool alone = benchmark::GetBenchmarkFilter().find("threads:1") != std::string::npos;
  constexpr size_t kL2 = size_t{256} << 10, kDram = size_t{128} << 20;
  std::string text = peak_instructions();
  for (int threads = 1; threads <= (alone ? 1 : 2); ++threads) {
    spread_over_cores(threads, kMostSpread);
    text += fmt::format("; {} thread{}: {:.1f} GFLOP/s, reads {:.1f} GB/s from L2, {:.1f} from DRAM", threads,
                        threads > 1 ? "s" : "", best_peak(threads) / 1e9,
                        read_bandwidth(kL2 * static_cast<size_t>(threads), threads) / 1e9,
                        read_bandwidth(kDram * static_cast<size_t>(threads), threads) / 1e9);
  }
  return text;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

void take_cores(const Work& work) {
  const double spread = spread_over_cores(work.threads, kMostSpread);
  if (spread < kApart)
    std::fprintf(stderr, "of %d threads, one has %.2f of its rate alone: they share cores\n", work.threads, spread);
}

void compare(benchmark::State& state, const Work& work, const std::function<double()>& seconds) {
  constexpr double kLong = 0.1;
  std::unique_ptr<ReadPass> read;
  std::unique_ptr<UpdatePass> update, move;
  const bool trains = work.weights > 0 && (work.moments == 0 || work.moments == 2), moments = work.moments == 2;
  const double resident = work.resident > 0 ? work.resident : work.bytes;
  const auto weights = static_cast<size_t>(work.weights * work.moved);
  if (work.bytes > 0) read = std::make_unique<ReadPass>(resident, work.threads);
  if (trains) update = std::make_unique<UpdatePass>(moments ? update_adamw : update_sgd, weights, work.threads);
  if (trains && moments) move = std::make_unique<UpdatePass>(move_adamw, weights, work.threads);
  if (!read && !update) return;
  std::map<std::string, std::vector<double>> fractions;
  for (size_t pair = 0, pairs = 9; pair < pairs; ++pair) {
    const double now = seconds();
    if (now > kLong) pairs = 3;
    if (read) fractions["of_bandwidth"].push_back(work.bytes / now / (read->bytes() / read->seconds()));
    if (!trains) continue;
    const double updates = update->seconds() * (moments ? 1 : 1.5);
    fractions["of_update"].push_back(updates / now);
    fractions["of_move"].push_back((move ? move->seconds() : updates) / now);
  }
  for (auto& [name, values] : fractions) state.counters[name] = median(std::move(values));
  if (trains) state.counters["of_floor"] = std::max<double>(state.counters["of_update"], state.counters["of_peak"]);
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
  if (work.bytes > 0) state.counters["GB/s"] = work.bytes / best / 1e9;
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
