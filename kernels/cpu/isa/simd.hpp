// Vectors of one instruction set as GCC vector types. Private to the including translation unit.
#pragma once

#include <cstdint>
#include <immintrin.h>

#ifndef HM_ISA
#error "sources of isa/ are compiled once per instruction set, with HM_ISA set to its name"
#endif

namespace harmonics::cpu::HM_ISA {
namespace {

#if defined(__AVX512F__)
#define HM_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define HM_VECTOR_BYTES 32
#else
#define HM_VECTOR_BYTES 16
#endif

constexpr int64_t kWidth = HM_VECTOR_BYTES / 4;

typedef float vf __attribute__((vector_size(HM_VECTOR_BYTES), may_alias));
typedef int32_t vi __attribute__((vector_size(HM_VECTOR_BYTES), may_alias));
typedef uint32_t vu __attribute__((vector_size(HM_VECTOR_BYTES), may_alias));
typedef float vf_unaligned __attribute__((vector_size(HM_VECTOR_BYTES), may_alias, aligned(4)));
typedef int32_t vi_unaligned __attribute__((vector_size(HM_VECTOR_BYTES), may_alias, aligned(4)));

#define HM_INLINE [[gnu::always_inline, maybe_unused]] inline

HM_INLINE vf load(const float* p) { return *reinterpret_cast<const vf_unaligned*>(p); }
HM_INLINE void store(float* p, vf v) { *reinterpret_cast<vf_unaligned*>(p) = v; }
HM_INLINE vi load_int(const int32_t* p) { return *reinterpret_cast<const vi_unaligned*>(p); }
HM_INLINE vf splat(float x) { return x - vf{}; }
HM_INLINE vi splat_int(int32_t x) { return x - vi{}; }
HM_INLINE vi bits(vf v) { return reinterpret_cast<vi>(v); }
HM_INLINE vf as_float(vi v) { return reinterpret_cast<vf>(v); }
HM_INLINE vf choose(vi mask, vf a, vf b) { return mask ? a : b; }
HM_INLINE vi lanes() {
  vi v;
  for (int i = 0; i < kWidth; ++i) v[i] = i;
  return v;
}

#if defined(__AVX512F__)
HM_INLINE vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
HM_INLINE vf vsqrt(vf v) { return _mm512_sqrt_ps(v); }
HM_INLINE vf vround(vf v) { return _mm512_roundscale_ps(v, 8); }
HM_INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }  // returns b if either is NaN
HM_INLINE vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
HM_INLINE vf load_part(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
HM_INLINE void store_part(float* p, vf v, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
#elif defined(__AVX2__)
HM_INLINE vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
HM_INLINE vf vsqrt(vf v) { return _mm256_sqrt_ps(v); }
HM_INLINE vf vround(vf v) { return _mm256_round_ps(v, 8); }
HM_INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
HM_INLINE vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
HM_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
HM_INLINE vf load_part(const float* p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
HM_INLINE void store_part(float* p, vf v, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
#else
HM_INLINE vf fma(vf a, vf b, vf c) { return a * b + c; }
HM_INLINE vf vsqrt(vf v) { return _mm_sqrt_ps(v); }
HM_INLINE vf vround(vf v) { return _mm_round_ps(v, 8); }
HM_INLINE vf vmax(vf a, vf b) { return _mm_max_ps(a, b); }
HM_INLINE vf vmin(vf a, vf b) { return _mm_min_ps(a, b); }
HM_INLINE vf load_part(const float* p, int64_t n) {
  vf v{};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
HM_INLINE void store_part(float* p, vf v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
#endif

// Returns lane i of a comparison in bit i.
HM_INLINE uint32_t mask_bits(vi mask) {
#if defined(__AVX512F__)
  uint32_t lanes = _mm512_movepi32_mask((__m512i)mask);
#if defined(__SANITIZE_ADDRESS__)
  // g++ 12 with both sanitizers leaves bits above the sixteen set, but assumes they are zero.
  asm("" : "+r"(lanes));
  lanes &= 0xffff;
#endif
  return lanes;
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
#else
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)mask));
#endif
}
HM_INLINE bool any(vi mask) { return mask_bits(mask) != 0; }

HM_INLINE vf vabs(vf v) { return as_float(bits(v) & 0x7fffffff); }
HM_INLINE vf copy_sign(vf size, vf sign) { return as_float((bits(size) & 0x7fffffff) | (bits(sign) & INT32_MIN)); }
HM_INLINE vf with_sign_of(vf size, vf sign) { return as_float(bits(size) ^ (bits(sign) & INT32_MIN)); }
// Return NaN if either operand is NaN.
HM_INLINE vf maximum(vf a, vf b) { return choose(a != a, a, choose(a > b, a, b)); }
HM_INLINE vf minimum(vf a, vf b) { return choose(a != a, a, choose(a < b, a, b)); }
// Returns the first n lanes of v, and `other` in the remaining lanes.
HM_INLINE vf first(vf v, int64_t n, vf other) {
  return n >= kWidth ? v : choose(lanes() < static_cast<int32_t>(n), v, other);
}

// Reduces the lanes by halves, in an order that depends only on the width.
template <typename Join>
HM_INLINE float join_halves(vf v, Join join) {
#if defined(__AVX512F__)
  const __m256 eight = join(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = join(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
#elif defined(__AVX2__)
  const __m128 four = join(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
#else
  const __m128 four = v;
#endif
  const __m128 two = join(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(join(two, _mm_shuffle_ps(two, two, 1)));
}
HM_INLINE float sum_of(vf v) {
  return join_halves(
      v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
HM_INLINE float max_of(vf v) {
  return join_halves(
      v, [](auto a, auto b) __attribute__((always_inline)) { return a != a  ? a
                                                                    : a > b ? a
                                                                            : b; });
}

// Loads n <= kWidth lanes.
HM_INLINE vf load_some(const float* p, int64_t n) { return n == kWidth ? load(p) : load_part(p, n); }
HM_INLINE void store_some(float* p, vf v, int64_t n) { n == kWidth ? store(p, v) : store_part(p, v, n); }
HM_INLINE int64_t lanes_at(int64_t i, int64_t n) { return n - i < kWidth ? n - i : kWidth; }

// Operations on the lower half of a vector, which are cheaper on processors that execute wide vectors as two halves.
#if defined(__AVX512F__)
constexpr bool kHalves = true;
typedef float vh __attribute__((vector_size(32), may_alias));
HM_INLINE vh load_half(const float* p, int64_t n) {
  return _mm256_maskz_loadu_ps(static_cast<__mmask8>((1u << n) - 1), p);
}
HM_INLINE void store_half(float* p, vh v, int64_t n) {
  _mm256_mask_storeu_ps(p, static_cast<__mmask8>((1u << n) - 1), v);
}
HM_INLINE vh fma(vf x, vh b, vh c) { return _mm256_fmadd_ps(_mm512_castps512_ps256(x), b, c); }
HM_INLINE vh fma_half(float x, vh b, vh c) { return _mm256_fmadd_ps(_mm256_set1_ps(x), b, c); }
#else
constexpr bool kHalves = false;
typedef vf vh;
HM_INLINE vh load_half(const float* p, int64_t n) { return load_part(p, n); }
HM_INLINE void store_half(float* p, vh v, int64_t n) { store_part(p, v, n); }
HM_INLINE vh fma_half(float x, vh b, vh c) { return fma(splat(x), b, c); }
#endif

// The items [begin, end) of a part.
struct Range {
  int64_t begin, end;
};
HM_INLINE Range share(int64_t items, uint32_t parts, uint32_t part) {
  return {items * part / parts, items * (part + 1) / parts};
}

// sum += x * row, in the register of the sum: the compiler would also write other registers, and move them.
HM_INLINE void add_product(vf& sum, vf x, vf row) {
#if defined(__AVX512F__)
  __asm__("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(x), "v"(row));
#else
  sum = fma(x, row, sum);
#endif
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
