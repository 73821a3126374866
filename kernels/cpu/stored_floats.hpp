// Loads of stored floats as f32, by AVX-512 and plainly. Private to the including translation unit.
#pragma once

#include <immintrin.h>

#include "rounded_operand.hpp"

namespace harmonics::cpu {
namespace {

#if defined(__AVX512BW__) && defined(__AVX512VL__)
struct PlainFloats {
  using Number = float;
  [[gnu::always_inline]] static inline __m512 load(const float* p, __mmask16 some) {
    return _mm512_maskz_loadu_ps(some, p);
  }
};
struct StoredHalves {
  using Number = uint16_t;
  [[gnu::always_inline]] static inline __m512 load(const uint16_t* p, __mmask16 some) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, p));
  }
};
struct StoredBfloats {
  using Number = uint16_t;
  [[gnu::always_inline]] static inline __m512 load(const uint16_t* p, __mmask16 some) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, p)), 16));
  }
};

// Calls run(Loads{}) with the loads of the type.
template <typename Run>
[[gnu::always_inline]] static inline void with_loads(StoredFloat type, Run run) {
  if (type == StoredFloat::f32)
    run(PlainFloats{});
  else if (type == StoredFloat::f16)
    run(StoredHalves{});
  else
    run(StoredBfloats{});
}
#endif

}  // namespace
}  // namespace harmonics::cpu
