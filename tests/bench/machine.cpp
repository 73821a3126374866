#include "tests/bench/machine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace harmonics::bench {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSlices = 40;
constexpr size_t kLargeShare = size_t{16} << 20;  // takes long enough to need fewer
constexpr int kLargeSlices = 8;

#if defined(__x86_64__)

// Twelve independent sums cover four cycles of latency on two units; the factors are ordinary numbers.
#define HM_FMA_LOOP(registers)                                                                                  \
  asm volatile("vbroadcastss (%1), %%" registers "12\n\tvbroadcastss 4(%1), %%" registers                       \
               "13\n\t"                                                                                         \
               "vmovaps %%" registers "12, %%" registers "0\n\tvmovaps %%" registers "12, %%" registers         \
               "1\n\t"                                                                                          \
               "vmovaps %%" registers "12, %%" registers "2\n\tvmovaps %%" registers "12, %%" registers         \
               "3\n\t"                                                                                          \
               "vmovaps %%" registers "12, %%" registers "4\n\tvmovaps %%" registers "12, %%" registers         \
               "5\n\t"                                                                                          \
               "vmovaps %%" registers "12, %%" registers "6\n\tvmovaps %%" registers "12, %%" registers         \
               "7\n\t"                                                                                          \
               "vmovaps %%" registers "12, %%" registers "8\n\tvmovaps %%" registers "12, %%" registers         \
               "9\n\t"                                                                                          \
               "vmovaps %%" registers "12, %%" registers "10\n\tvmovaps %%" registers "12, %%" registers        \
               "11\n\t"                                                                                         \
               ".p2align 5\n1:\n\t"                                                                             \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "0\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "1\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "2\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "3\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "4\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "5\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "6\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "7\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "8\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "9\n\t"                                                                                          \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "10\n\t"                                                                                         \
               "vfmadd231ps %%" registers "12, %%" registers "13, %%" registers                                 \
               "11\n\t"                                                                                         \
               "decq %0\n\tjnz 1b\n\tvzeroupper"                                                                \
               : "+r"(rounds)                                                                                   \
               : "r"(factors), "m"(factors)                                                                     \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                 "xmm11", "xmm12", "xmm13")

// Eight loads a round, each to a register of its own.
#define HM_READ_LOOP(instruction, registers, width)                                                              \
  asm volatile(".p2align 5\n1:\n\t" instruction " 0*" width "(%0), %%" registers "0\n\t" instruction " 1*" width \
               "(%0), %%" registers "1\n\t" instruction " 2*" width "(%0), %%" registers "2\n\t" instruction     \
               " 3*" width "(%0), %%" registers "3\n\t" instruction " 4*" width "(%0), %%" registers             \
               "4\n\t" instruction " 5*" width "(%0), %%" registers "5\n\t" instruction " 6*" width              \
               "(%0), %%" registers "6\n\t" instruction " 7*" width "(%0), %%" registers                         \
               "7\n\t"                                                                                           \
               "addq $8*" width ", %0\n\tdecq %1\n\tjnz 1b"                                                      \
               : "+r"(at), "+r"(rounds)                                                                          \
               :                                                                                                 \
               : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7")

constexpr float factors[2] = {0.5f, 0.25f};
constexpr uint64_t kFmaRounds = 100000;

bool has_avx512() { return __builtin_cpu_supports("avx512f"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

void fma_avx2(uint64_t rounds) { HM_FMA_LOOP("ymm"); }
void fma_avx512(uint64_t rounds) { HM_FMA_LOOP("zmm"); }

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

double flops_of_slice() {
  const auto start = Clock::now();
  has_avx512() ? fma_avx512(kFmaRounds) : fma_avx2(kFmaRounds);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(kFmaRounds) * 12 * (has_avx512() ? 16 : 8) * 2 / seconds;
}

#else
#error "the yardsticks are written for x86-64 only: add this machine's loops here"
#endif

// best(body) on every thread at the same time, added up.
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

std::string peak_instructions() { return has_avx512() ? "avx512" : has_avx2() ? "avx2" : "none"; }

double peak_flops(int threads) {
  if (peak_instructions() == "none") return 0;
  return on_all(threads, [] {
    double best = 0;
    for (int i = 0; i < kSlices; ++i) best = std::max(best, flops_of_slice());
    return best;
  });
}

double read_bandwidth(size_t bytes, int threads) {
  const size_t share = std::max<size_t>(bytes / static_cast<size_t>(threads) / 4096 * 4096, 4096);
  return on_all(threads, [share] {
    const std::unique_ptr<std::byte, void (*)(void*)> memory(static_cast<std::byte*>(std::aligned_alloc(4096, share)),
                                                             std::free);
    std::fill_n(memory.get(), share, std::byte{1});
    const size_t passes = std::max<size_t>(1, (size_t{1} << 22) / share);  // a slice reads 4 MiB or all there is
    const int slices = share > kLargeShare ? kLargeSlices : kSlices;
    double best = 0;
    for (int i = 0; i < slices; ++i) {
      const auto start = Clock::now();
      for (size_t pass = 0; pass < passes; ++pass) read_memory(memory.get(), share);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::max(best, static_cast<double>(share * passes) / seconds);
    }
    return best;
  });
}

}  // namespace harmonics::bench
