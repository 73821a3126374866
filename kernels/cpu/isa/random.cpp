// Philox 4x32-10, as harmonics/philox.hpp defines the engine's random numbers; kWidth counters at once.
#include "../layout.hpp"
#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Lanes of one block of counters: word w of counter i.
struct Words {
  uint32_t w[4][kWidth];
};

Words philox(uint64_t first, uint64_t step, uint64_t key) {
  Words c;
  for (int64_t i = 0; i < kWidth; ++i) {
    const uint64_t place = first + static_cast<uint64_t>(i);
    c.w[0][i] = static_cast<uint32_t>(step);
    c.w[1][i] = static_cast<uint32_t>(step >> 32);
    c.w[2][i] = static_cast<uint32_t>(place);
    c.w[3][i] = static_cast<uint32_t>(place >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    for (int64_t i = 0; i < kWidth; ++i) {
      const uint64_t a = uint64_t{0xD2511F53u} * c.w[0][i], b = uint64_t{0xCD9E8D57u} * c.w[2][i];
      c.w[0][i] = static_cast<uint32_t>(b >> 32) ^ c.w[1][i] ^ k0;
      c.w[1][i] = static_cast<uint32_t>(b);
      c.w[2][i] = static_cast<uint32_t>(a >> 32) ^ c.w[3][i] ^ k1;
      c.w[3][i] = static_cast<uint32_t>(a);
    }
  }
  return c;
}

}  // namespace

void random_uniform(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RandomContext*>(context);
  const int64_t* counter = static_cast<const int64_t*>(buffers[0]);
  float* y = static_cast<float*>(buffers[1]);
  const uint64_t key = splitmix(static_cast<uint64_t>(counter[0]) ^ splitmix(c.stream));
  constexpr int64_t kBlock = 4 * kWidth;
  const Range blocks = share((c.count + kBlock - 1) / kBlock, c.parts, part);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const Words words = philox(static_cast<uint64_t>(b * kWidth), static_cast<uint64_t>(counter[1]), key);
    const int64_t n = c.count - b * kBlock < kBlock ? c.count - b * kBlock : kBlock;
    for (int64_t i = 0; i < n; ++i) y[b * kBlock + i] = static_cast<float>(words.w[i % 4][i / 4] >> 8) * 0x1p-24f;
  }
}

}  // namespace harmonics::cpu::HM_ISA
