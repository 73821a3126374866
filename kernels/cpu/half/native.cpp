// fp16 vectors by AVX512-FP16. Called only on processors that support it.
#include <immintrin.h>

#include "product.hpp"

namespace harmonics::cpu::half {
namespace {

struct Native {
  typedef _Float16 Halves __attribute__((vector_size(64)));

  [[gnu::always_inline]] static Halves zero() { return Halves{}; }
  [[gnu::always_inline]] static Halves load(const uint16_t* p) { return (Halves)_mm512_loadu_si512(p); }
  // A 32-bit broadcast from memory uses no arithmetic port; a 16-bit broadcast would.
  [[gnu::always_inline]] static Halves pair(const uint32_t* p) {
    return (Halves)_mm512_set1_epi32(static_cast<int>(*p));
  }
  [[gnu::always_inline]] static Halves fma(Halves a, Halves b, Halves c) {
    return (Halves)_mm512_fmadd_ph((__m512h)a, (__m512h)b, (__m512h)c);
  }
  [[gnu::always_inline]] static void add_to(float* to, Halves v) {
    const __m512i bits = (__m512i)v;
    const __m512 low = _mm512_cvtxph_ps((__m256h)_mm512_castsi512_si256(bits)),
                 high = _mm512_cvtxph_ps((__m256h)_mm512_extracti64x4_epi64(bits, 1));
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), low));
    _mm512_storeu_ps(to + 16, _mm512_add_ps(_mm512_loadu_ps(to + 16), high));
  }
  [[gnu::always_inline]] static uint16_t round(float x) {
    const auto h = static_cast<_Float16>(x);
    uint16_t bits;
    __builtin_memcpy(&bits, &h, sizeof bits);
    return bits;
  }
};

}  // namespace

void native(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
            HalfWorkspace& workspace) {
  multiply<Native>(p, a, b, c, i0, i1, j0, j1, workspace);
}

}  // namespace harmonics::cpu::half
