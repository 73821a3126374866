// fp16 vectors by AVX512-FP16. Called only on processors that support it.
#include "pack.hpp"
#include "product.hpp"

namespace harmonics::cpu::half {
namespace {

struct Native {
  using Halves = __m512h;
  struct alignas(64) Kept {
    uint16_t numbers[32];
  };

  HM_HALF_INLINE Halves zero() { return _mm512_setzero_ph(); }
  HM_HALF_INLINE Halves load(const uint16_t* p) { return (Halves)_mm512_load_si512(p); }
  // A 32-bit broadcast from memory uses no arithmetic port; a 16-bit broadcast would.
  HM_HALF_INLINE Halves pair(const uint32_t* p) { return (Halves)_mm512_set1_epi32(static_cast<int>(*p)); }
  HM_HALF_INLINE Halves fma(Halves a, Halves b, Halves c) { return _mm512_fmadd_ph(a, b, c); }
  HM_HALF_INLINE void keep(Kept& to, Halves v) { _mm512_store_si512(to.numbers, (__m512i)v); }
  HM_HALF_INLINE Halves plus(const Kept& before, Halves v) {
    return _mm512_add_ph((Halves)_mm512_load_si512(before.numbers), v);
  }
  // Makes the compiler load what was kept. Widening from memory takes fewer arithmetic operations than moving the upper
  // half of a register.
  HM_HALF_INLINE void settle() { asm volatile("" ::: "memory"); }
  HM_HALF_INLINE __m512 widened(const uint16_t* p) {
    return _mm512_cvtxph_ps((__m256h)_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  HM_HALF_INLINE void give_back(const Kept& v, float a_exponent, const float* b_exponents, int64_t columns, float* c,
                                bool add) {
    const __m512 exponent = _mm512_set1_ps(a_exponent);
#pragma GCC unroll 2
    for (int64_t j = 0; j < 32; j += 16) {
      const __mmask16 some = lanes(columns - j);
      __m512 value = widened(v.numbers + j);
      value = _mm512_scalef_ps(value, _mm512_add_ps(exponent, _mm512_load_ps(b_exponents + j)));
      if (add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(some, c + j), value);
      _mm512_mask_storeu_ps(c + j, some, value);
    }
  }
};

}  // namespace

constexpr RoundedRoutines native =
    routines("packed fp16 chunks", "sparse or packed fp16 chunks", pack_operand, multiply<Native>);

}  // namespace harmonics::cpu::half
