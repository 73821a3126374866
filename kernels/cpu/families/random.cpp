// Philox 4x32-10 random numbers as defined in harmonics/philox.hpp, for kWidth counters at once.
#include "../family.hpp"

namespace harmonics::cpu {
namespace {

struct RandomContext {
  int64_t count;
  uint64_t stream;
  uint32_t parts;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

typedef uint64_t vl __attribute__((vector_size(HM_VECTOR_BYTES), may_alias));

// Returns the 64-bit products of the even lanes.
HM_INLINE vl multiply_even(vl a, vl b) {
#if defined(__AVX512F__)
  return (vl)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (vl)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (vl)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}
HM_INLINE vu high_words(vu a, uint32_t factor) {
  const vl f = factor - vl{};
  const vl even = multiply_even((vl)a, f), odd = multiply_even((vl)a >> 32, f);
  return (vu)((even >> 32) | (odd & 0xffffffff00000000u));
}

// y[4 i + w] = word w of counter first + i, as a number in [0, 1).
HM_INLINE void philox(uint64_t first, uint64_t step, uint64_t key, float* y) {
  vu c[4], place = (vu)lanes() + static_cast<uint32_t>(first);
  c[0] = static_cast<uint32_t>(step) - vu{};
  c[1] = static_cast<uint32_t>(step >> 32) - vu{};
  c[2] = place;
  c[3] = static_cast<uint32_t>(first >> 32) - (vu)(place < static_cast<uint32_t>(first));  // true is -1: the carry
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const vu high_a = high_words(c[0], 0xD2511F53u), low_a = c[0] * 0xD2511F53u;
    const vu high_b = high_words(c[2], 0xCD9E8D57u), low_b = c[2] * 0xCD9E8D57u;
    c[0] = high_b ^ c[1] ^ k0;
    c[1] = low_b;
    c[2] = high_a ^ c[3] ^ k1;
    c[3] = low_a;
  }
  float words[4][kWidth];
  for (int w = 0; w < 4; ++w) store(words[w], __builtin_convertvector((vi)(c[w] >> 8), vf) * 0x1p-24f);
  for (int64_t i = 0; i < kWidth; ++i)
    for (int w = 0; w < 4; ++w) y[4 * i + w] = words[w][i];
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
    const uint64_t first = static_cast<uint64_t>(b * kWidth), step = static_cast<uint64_t>(counter[1]);
    const int64_t left = c.count - b * kBlock;
    float last[kBlock];
    philox(first, step, key, left < kBlock ? last : y + b * kBlock);
    for (int64_t i = 0; left < kBlock && i < left; ++i) y[b * kBlock + i] = last[i];
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(random_uniform)

namespace harmonics::cpu {
namespace {

bool plan_random_uniform(const Site& site, hx_kernel& out) {
  if (site.in(0).dtype != HX_I64 || count(site.in(0)) != 2 || !is_f32(site.out())) return false;
  auto c = std::make_unique<RandomContext>();
  c->count = count(site.out());
  c->stream = static_cast<uint64_t>(site.integer("stream"));
  c->parts = parts_for(static_cast<double>(c->count) * 1.2, (c->count + 63) / 64);
  answer(out, std::move(c), chosen::random_uniform(), "philox");
  return true;
}

}  // namespace

HM_PLANS(random, {"random_uniform", plan_random_uniform})

}  // namespace harmonics::cpu

#endif
