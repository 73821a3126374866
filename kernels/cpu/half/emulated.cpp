// Emulates AVX512-FP16: fp16 numbers are floats, rounded after every operation.
#include <immintrin.h>

#include "product.hpp"

namespace harmonics::cpu::half {
namespace {

struct Emulated {
  struct Halves {
    __m256 lanes[4];
  };

  static __m256 rounded(__m256 v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
  static Halves zero() { return {}; }
  static Halves load(const uint16_t* p) {
    Halves h;
    for (int i = 0; i < 4; ++i) h.lanes[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i));
    return h;
  }
  static Halves pair(const uint32_t* p) {
    const __m256 x = _mm256_set1_ps(_cvtsh_ss(static_cast<uint16_t>(*p)));
    return {{x, x, x, x}};
  }
  // The product of two fp16 numbers is exact in fp32; the sum is rounded to fp32 and then to fp16.
  static Halves fma(const Halves& a, const Halves& b, const Halves& c) {
    Halves h;
    for (int i = 0; i < 4; ++i) h.lanes[i] = rounded(_mm256_fmadd_ps(a.lanes[i], b.lanes[i], c.lanes[i]));
    return h;
  }
  static void add_to(float* to, const Halves& v) {
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(to + 8 * i, _mm256_add_ps(_mm256_loadu_ps(to + 8 * i), v.lanes[i]));
  }
  static uint16_t round(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
};

}  // namespace

void emulated(const Product& p, const float* a, const float* b, float* c, int64_t i0, int64_t i1, int64_t j0,
              int64_t j1, HalfWorkspace& workspace) {
  multiply<Emulated>(p, a, b, c, i0, i1, j0, j1, workspace);
}

}  // namespace harmonics::cpu::half
