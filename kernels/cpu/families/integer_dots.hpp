// Dot products of bytes, by the instructions available.
#pragma once

#include <cstring>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- dot products of four bytes in each lane. kSums pairwise products are added in 16 bits.

#if defined(__AVX512F__)
HM_INLINE vi pairs_of_bytes(vi unsigned_bytes, vi signed_bytes) {
  return (vi)_mm512_maddubs_epi16((__m512i)unsigned_bytes, (__m512i)signed_bytes);
}
HM_INLINE vi add_pairs(vi a, vi b) { return (vi)_mm512_add_epi16((__m512i)a, (__m512i)b); }
HM_INLINE vi lanes_of_pairs(vi pairs) { return (vi)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1)); }
HM_INLINE vi size_of_bytes(vi v) { return (vi)_mm512_abs_epi8((__m512i)v); }
HM_INLINE vi sign_bytes(vi v, vi sign) {
  return (vi)_mm512_mask_sub_epi8((__m512i)v, _mm512_movepi8_mask((__m512i)sign), _mm512_setzero_si512(), (__m512i)v);
}
#elif defined(__AVX2__)
HM_INLINE vi pairs_of_bytes(vi unsigned_bytes, vi signed_bytes) {
  return (vi)_mm256_maddubs_epi16((__m256i)unsigned_bytes, (__m256i)signed_bytes);
}
HM_INLINE vi add_pairs(vi a, vi b) { return (vi)_mm256_add_epi16((__m256i)a, (__m256i)b); }
HM_INLINE vi lanes_of_pairs(vi pairs) { return (vi)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }
HM_INLINE vi size_of_bytes(vi v) { return (vi)_mm256_abs_epi8((__m256i)v); }
HM_INLINE vi sign_bytes(vi v, vi sign) { return (vi)_mm256_sign_epi8((__m256i)v, (__m256i)sign); }
#else
HM_INLINE vi pairs_of_bytes(vi unsigned_bytes, vi signed_bytes) {
  return (vi)_mm_maddubs_epi16((__m128i)unsigned_bytes, (__m128i)signed_bytes);
}
HM_INLINE vi add_pairs(vi a, vi b) { return (vi)_mm_add_epi16((__m128i)a, (__m128i)b); }
HM_INLINE vi lanes_of_pairs(vi pairs) { return (vi)_mm_madd_epi16((__m128i)pairs, _mm_set1_epi16(1)); }
HM_INLINE vi size_of_bytes(vi v) { return (vi)_mm_abs_epi8((__m128i)v); }
HM_INLINE vi sign_bytes(vi v, vi sign) { return (vi)_mm_sign_epi8((__m128i)v, (__m128i)sign); }
#endif

struct FourBytes {
  int8_t bytes[4];
};
HM_INLINE vi four_at(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return splat_int(four);
}

#if defined(__AVX2__)
// VNNI: adds the products of the four bytes of w and the four bytes at x to each lane. Assembly, because the flags of
// the instruction set do not include VNNI.
struct FourAtOnce {
  static constexpr int kSums = 1;
  static constexpr bool kSigned = false, kLanes = true;
  HM_INLINE static vi prepared(vi w) { return w; }
  HM_INLINE static vi add(vi sum, vi w, vi, vi x) {
#if defined(__AVX512F__)
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
#endif
    return sum;
  }
  HM_INLINE static vi add(vi sum, vi w, vi size, const int8_t* x) {
#if defined(__AVX512F__)
    (void)size;
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const FourBytes*>(x)));
    return sum;
#else
    return add(sum, w, size, four_at(x));
#endif
  }
};
#endif

// For indices below 64; the sum of kMost pairwise products fits 16 bits.
template <int kMost>
struct PairsAtOnce {
  static constexpr int kSums = kMost;
  static constexpr bool kSigned = false, kLanes = false;
  HM_INLINE static vi prepared(vi w) { return w; }
  HM_INLINE static vi add(vi pairs, vi w, vi, vi x) { return add_pairs(pairs, pairs_of_bytes(w, x)); }
  HM_INLINE static vi add(vi pairs, vi w, vi size, const int8_t* x) { return add(pairs, w, size, four_at(x)); }
};

// For indices of 8 bits, minus 128.
struct SignedPairs {
  static constexpr int kSums = 1;
  static constexpr bool kSigned = true, kLanes = false;
  HM_INLINE static vi prepared(vi w) { return size_of_bytes(w); }
  HM_INLINE static vi add(vi pairs, vi w, vi size, vi x) {
    return add_pairs(pairs, pairs_of_bytes(size, sign_bytes(x, w)));
  }
  HM_INLINE static vi add(vi pairs, vi w, vi size, const int8_t* x) { return add(pairs, w, size, four_at(x)); }
};

// Selects the dot product for processors without VNNI.
template <typename W, int kSums = W::kSums>
struct PairsFor {
  using Dot = PairsAtOnce<kSums>;
};
template <typename W>
struct PairsFor<W, 0> {
  using Dot = SignedPairs;
};
template <typename W>
using PairsOf = typename PairsFor<W>::Dot;

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
