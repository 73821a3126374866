#include "engine/execution/machine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/tensor/value.hpp"

namespace harmonics::engine {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSlices = 40;
constexpr size_t kLargeShare = size_t{16} << 20;  // one pass over a larger share takes long, so fewer slices suffice
constexpr int kLargeSlices = 8;
constexpr size_t kMostMemory = size_t{512} << 20;  // larger than the caches of a few threads

#if defined(__x86_64__)

// Twelve independent sums hide a latency of four cycles on two FMA units. The factors are normal numbers.
#define HM_SET(v, n) "vmovaps %%" v "12, %%" v n "\n\t"
#define HM_FMA(v, n) "vfmadd231ps %%" v "12, %%" v "13, %%" v n "\n\t"
#define HM_TWELVE(each, v)                                                                                             \
  each(v, "0") each(v, "1") each(v, "2") each(v, "3") each(v, "4") each(v, "5") each(v, "6") each(v, "7") each(v, "8") \
      each(v, "9") each(v, "10") each(v, "11")
#define HM_FMA_LOOP(v)                                                                                          \
  asm volatile("vbroadcastss (%1), %%" v "12\n\tvbroadcastss 4(%1), %%" v "13\n\t" HM_TWELVE(                   \
                   HM_SET, v) ".p2align 5\n1:\n\t" HM_TWELVE(HM_FMA, v) "decq %0\n\tjnz 1b\n\tvzeroupper"       \
               : "+r"(rounds)                                                                                   \
               : "r"(factors), "m"(factors)                                                                     \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                 "xmm11", "xmm12", "xmm13")

// Eight loads per iteration, each into its own register.
#define HM_LOAD(instruction, v, width, n) instruction " " n "*" width "(%0), %%" v n "\n\t"
#define HM_READ_LOOP(i, v, w)                                                                              \
  asm volatile(".p2align 5\n1:\n\t" HM_LOAD(i, v, w, "0") HM_LOAD(i, v, w, "1") HM_LOAD(i, v, w, "2")      \
                   HM_LOAD(i, v, w, "3") HM_LOAD(i, v, w, "4") HM_LOAD(i, v, w, "5") HM_LOAD(i, v, w, "6") \
                       HM_LOAD(i, v, w, "7") "addq $8*" w ", %0\n\tdecq %1\n\tjnz 1b"                      \
               : "+r"(at), "+r"(rounds)                                                                    \
               :                                                                                           \
               : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7")

constexpr float factors[2] = {0.5f, 0.25f};
constexpr uint64_t kFmaRounds = 100000;

// Returns whether HARMONICS_ISA, which limits the device cpu, allows these vectors.
bool is_allowed(std::string_view isa) {
  const char* const limit = std::getenv("HARMONICS_ISA");
  return !limit || !*limit || limit == isa || limit == std::string_view("avx512");
}
bool has_avx512() { return __builtin_cpu_supports("avx512f") && is_allowed("avx512"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && is_allowed("avx2"); }

void fma_avx2(uint64_t rounds) { HM_FMA_LOOP("ymm"); }
void fma_avx512(uint64_t rounds) { HM_FMA_LOOP("zmm"); }

// Returns the rate of `slices` slices of multiply-adds, each of about a third of a millisecond.
double flops_of(int slices) {
  const bool wide = has_avx512();
  const uint64_t rounds = kFmaRounds * static_cast<uint64_t>(slices);
  const auto start = Clock::now();
  wide ? fma_avx512(rounds) : fma_avx2(rounds);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(rounds) * 12 * (wide ? 16 : 8) * 2 / seconds;
}

#else

bool has_avx512() { return false; }
bool has_avx2() { return false; }
double flops_of(int) { return 0; }

#endif

// Runs best(body) on all threads at once and adds up the results.
template <typename Body>
double on_all(int threads, const Body& body) {
  std::vector<double> best(static_cast<size_t>(threads), 0.0);
  std::atomic<int> waiting{threads};
  const auto work = [&](size_t i) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    best[i] = body();
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < best.size(); ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (double b : best) sum += b;
  return sum;
}

}  // namespace

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown processor";
}

std::string peak_instructions() { return has_avx512() ? "avx512" : has_avx2() ? "avx2" : "none"; }

#if defined(__x86_64__)

void read_memory(const std::byte* at, size_t bytes) {
  if (has_avx512()) {
    uint64_t rounds = bytes / 512;
    HM_READ_LOOP("vmovups", "zmm", "64");
    asm volatile("vzeroupper" ::: "xmm0");
  } else if (has_avx2()) {
    uint64_t rounds = bytes / 256;
    HM_READ_LOOP("vmovups", "ymm", "32");
    asm volatile("vzeroupper" ::: "xmm0");
  } else {
    uint64_t rounds = bytes / 128;
    HM_READ_LOOP("movups", "xmm", "16");
  }
}

#else

void read_memory(const std::byte* at, size_t bytes) {
  uint64_t sum = 0;
  for (const auto *word = reinterpret_cast<const uint64_t*>(at), *end = word + bytes / 8; word != end; ++word)
    sum += *word;
  asm volatile("" : : "r"(sum));
}

#endif

double peak_flops(int threads) {
  if (peak_instructions() == "none") return 0;
  return on_all(threads, [] {
    double best = 0;
    for (int i = 0; i < kSlices; ++i) best = std::max(best, flops_of(1));
    return best;
  });
}

double spread_over_cores(int threads, double seconds) {
  if (threads <= 1 || peak_instructions() == "none") return 1;
  constexpr int kTogether = 30;  // about 10 ms: longer than a time slice that one thread may have for itself
  if (threads > static_cast<int>(std::thread::hardware_concurrency())) seconds = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double alone = 0;
  for (int i = 0; i < kTogether; ++i) alone = std::max(alone, flops_of(1));
  std::vector<std::atomic<double>> rates(static_cast<size_t>(threads));
  std::atomic<bool> done{false};
  std::atomic<size_t> next{0};
  double reached = 0;
  // The threads stay the same throughout: a new one would be placed again.
  on_all(threads, [&] {
    const size_t self = next.fetch_add(1);
    while (!done.load()) {
      rates[self].store(flops_of(kTogether));
      if (self != 0) continue;
      reached = 1;
      for (const std::atomic<double>& rate : rates) reached = std::min(reached, rate.load() / alone);
      if (reached >= kApart || (reached > 0 && Clock::now() >= end)) done.store(true);
    }
    return 0.0;
  });
  return reached;
}

double read_bandwidth(size_t bytes, int threads) {
  const size_t share = std::max<size_t>(bytes / static_cast<size_t>(threads) / 4096 * 4096, 4096);
  return on_all(threads, [share] {
    const Storage memory(share);  // as tensors have it: huge pages read faster
    std::memset(memory.data(), 1, share);
    const size_t passes = std::max<size_t>(1, (size_t{1} << 22) / share);  // a slice reads at least 4 MiB
    const int slices = share > kLargeShare ? kLargeSlices : kSlices;
    double best = 0;
    for (int i = 0; i < slices; ++i) {
      const auto start = Clock::now();
      for (size_t pass = 0; pass < passes; ++pass) read_memory(static_cast<const std::byte*>(memory.data()), share);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::max(best, static_cast<double>(share * passes) / seconds);
    }
    return best;
  });
}

double MachinePeaks::peak() {
  if (peak_ < 0) peak_ = measured_peak();
  return peak_;
}

double MachinePeaks::bandwidth(double bytes) {
  size_t size = size_t{16} << 10;
  while (static_cast<double>(size) < bytes && size < kMostMemory) size *= 2;
  double& seen = bandwidths_[size];
  if (seen == 0) seen = measured_bandwidth(size);
  return seen;
}

void MachinePeaks::again() {
  if (peak_ >= 0) peak_ = std::max(peak_, measured_peak());
  for (auto& [size, seen] : bandwidths_) seen = std::max(seen, measured_bandwidth(size));
}

double MachinePeaks::floor(double flops, double bytes) {
  const double arithmetic = flops > 0 && peak() > 0 ? flops / peak() : 0;
  return std::max(arithmetic, bytes > 0 ? bytes / bandwidth(bytes) : 0);
}

}  // namespace harmonics::engine
