// Moments stored in 16 or 8 bits: see engine/functional/stored_moments.hpp, which defines their bits. Private to the
// including translation unit.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// `n` lanes of narrow elements; the others are zero. The upper bits of what is stored are dropped.
#if defined(__AVX512F__)
HM_INLINE vi load_narrow(const uint8_t* p, int64_t n) {
  if (n == kWidth) return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return (vi)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1), p));
}
HM_INLINE void store_narrow(uint8_t* p, vi v, int64_t n) {
  const __m128i narrow = _mm512_cvtepi32_epi8((__m512i)v);
  if (n == kWidth) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow);
  _mm_mask_storeu_epi8(p, static_cast<__mmask16>((1u << n) - 1), narrow);
}
#else
template <typename T>
HM_INLINE vi load_narrow(const T* p, int64_t n) {
  vi v{};
  if (n == kWidth)
    for (int i = 0; i < kWidth; ++i) v[i] = p[i];
  else
    for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
template <typename T>
HM_INLINE void store_narrow(T* p, vi v, int64_t n) {
  if (n == kWidth)
    for (int i = 0; i < kWidth; ++i) p[i] = static_cast<T>(v[i]);
  else
    for (int64_t i = 0; i < n; ++i) p[i] = static_cast<T>(v[i]);
}
#endif

// Random bits of a step: the upper ones for means, the lower ones for squares.
struct RandomBits {
  uint32_t key;
  HM_INLINE explicit RandomBits(uint32_t step) : key(step) {
    key = (key ^ (key >> 16)) * 0x7feb352du;
    key = (key ^ (key >> 15)) * 0x846ca68bu;
    key ^= key >> 16;
  }
  HM_INLINE vu at(int64_t place) const {
    constexpr uint32_t kStep = 0x9e3779b1u;
    return (vu)lanes() * kStep + (static_cast<uint32_t>(place) * kStep + key);
  }
};
template <int kCount>
HM_INLINE vu bits_of(vu random, int moment) {
  return moment == 0 ? random >> (32 - kCount) : random & ((1u << kCount) - 1);
}

// A moment's element as it is stored: float or bf16.
HM_INLINE vf load_moment(const float* p, int64_t n) { return load_some(p, n); }
HM_INLINE void store_moment(float* p, vf v, int64_t n, vu) { store_some(p, v, n); }
#if defined(__AVX512F__)
// Words move between the upper halves of lanes and a row of words: one instruction instead of a shift and a conversion.
HM_INLINE vf load_moment(const uint16_t* p, int64_t n) {
  const auto mask = static_cast<__mmask16>((1u << n) - 1);
  const __m256i words =
      n == kWidth ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)) : _mm256_maskz_loadu_epi16(mask, p);
  const __m512i places = (__m512i)(lanes() << 16);
  return (vf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, places, _mm512_castsi256_si512(words));
}
HM_INLINE void store_moment(uint16_t* p, vf v, int64_t n, vu random) {
  const __m512i places = (__m512i)((lanes() * 4 + 1) | (lanes() * 4 + 3) << 16);
  const __m256i words = _mm512_castsi512_si256(_mm512_permutexvar_epi16(places, (__m512i)((vu)bits(v) + random)));
  if (n == kWidth) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), words);
}
#else
HM_INLINE vf load_moment(const uint16_t* p, int64_t n) { return as_float(load_narrow(p, n) << 16); }
HM_INLINE void store_moment(uint16_t* p, vf v, int64_t n, vu random) {
  store_narrow(p, (vi)(((vu)bits(v) + random) >> 16), n);
}
#endif

// ---- 8 bits ---------------------------------------------------------------------------------------------------------

constexpr int kBlock = 16, kCodeShift = 20;  // rows and columns of a block; bits of f32's fraction below a code's

HM_INLINE vi larger(vi a, vi b) { return a > b ? a : b; }

// Format of a code: its exponents, and whether it has a sign and a zero.
template <int kExponents, bool kSigned>
struct Code {
  // Scales are 0 before the first step.
  HM_INLINE static int32_t base(uint8_t scale) {
    return ((scale > kExponents ? scale : kExponents) - (kExponents - 1)) << 23;
  }
  // Leaves room for rounding up.
  HM_INLINE static uint8_t scale(vi most) {
    const float m = max_of(as_float(most));
    int32_t word;
    __builtin_memcpy(&word, &m, sizeof word);
    word = (word + (1 << kCodeShift) - 1) >> 23;
    return static_cast<uint8_t>(word > kExponents ? word : kExponents);
  }
  HM_INLINE static vi size(vf x) { return kSigned ? bits(x) & 0x7fffffff : bits(x); }
  HM_INLINE static vf decode(vi code, int32_t base) {
    if (!kSigned) return as_float((code << kCodeShift) + base);
    const vi size = code & 127;
    return as_float((((size << kCodeShift) + base) & ~(vi)(size == 0)) | ((code << 24) & INT32_MIN));
  }
  HM_INLINE static vi encode(vf x, int32_t base, vu random) {
    const vi above = larger(size(x) - base, vi{});
    const vi code = (vi)(((vu)above + random) >> kCodeShift);
    return kSigned ? code | (vi)((vu)bits(x) >> 31 << 7) : code;
  }
};
using MeanCode = Code<16, true>;
using SquareCode = Code<32, false>;

// Codes and scales of both moments, before and after a step.
struct CodedMoments {
  const uint8_t *old[2], *old_scale[2];
  uint8_t *now[2], *now_scale[2];
};

// A step of one block: `rows` rows from `row` on, columns [begin, end) of n. kFull: rows and columns are complete.
template <bool kFull, typename Rule, typename Gradient>
HM_INLINE void update_block(const Rule& rule, const RandomBits& random, const CodedMoments& m, const float* w,
                            float* new_w, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t n,
                            int64_t scale, const Gradient& gradient) {
  alignas(64) float moments[2][kBlock][kBlock];
  const int32_t bases[2] = {MeanCode::base(m.old_scale[0][scale]), SquareCode::base(m.old_scale[1][scale])};
  const int64_t used = kFull ? kBlock : rows, last = kFull ? begin + kBlock : end;
  vi most[2] = {};
  for (int64_t r = 0; r < used; ++r)
    for (int64_t j = begin; j < last; j += kWidth) {
      const int64_t place = (row + r) * n + j, some = kFull ? kWidth : lanes_at(j, end);
      vf now[2] = {MeanCode::decode(load_narrow(m.old[0] + place, some), bases[0]),
                   SquareCode::decode(load_narrow(m.old[1] + place, some), bases[1])};
      const vf weight = load_some(w + place, some);
      store_some(new_w + place, rule.step(weight, gradient(r, j, some, weight), now), some);
      for (int k = 0; k < 2; ++k) store(moments[k][r] + (j - begin), now[k]);
      most[0] = larger(most[0], MeanCode::size(now[0])), most[1] = larger(most[1], SquareCode::size(now[1]));
    }
  const uint8_t scales[2] = {MeanCode::scale(most[0]), SquareCode::scale(most[1])};
  const int32_t next[2] = {MeanCode::base(scales[0]), SquareCode::base(scales[1])};
  for (int64_t r = 0; r < used; ++r)
    for (int64_t j = begin; j < last; j += kWidth) {
      const int64_t place = (row + r) * n + j, some = kFull ? kWidth : lanes_at(j, end);
      const vu bits = random.at(place);
      const vf mean = load(moments[0][r] + (j - begin)), square = load(moments[1][r] + (j - begin));
      store_narrow(m.now[0] + place, MeanCode::encode(mean, next[0], bits_of<kCodeShift>(bits, 0)), some);
      store_narrow(m.now[1] + place, SquareCode::encode(square, next[1], bits_of<kCodeShift>(bits, 1)), some);
    }
  m.now_scale[0][scale] = scales[0], m.now_scale[1][scale] = scales[1];
}

// Rows [row, row + rows) of one row of blocks; w is [..., n]. `gradient(r, j, lanes, w)`: that of row + r, columns from
// j on.
template <typename Rule, typename Gradient>
HM_INLINE void update_blocks(const Rule& rule, const RandomBits& random, const CodedMoments& m, const float* w,
                             float* new_w, int64_t row, int64_t rows, int64_t n, const Gradient& gradient) {
  const int64_t across = (n + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < across; ++block) {
    const int64_t begin = block * kBlock, end = begin + kBlock < n ? begin + kBlock : n,
                  scale = row / kBlock * across + block;
    if (rows == kBlock && end == begin + kBlock)
      update_block<true>(rule, random, m, w, new_w, row, rows, begin, end, n, scale, gradient);
    else
      update_block<false>(rule, random, m, w, new_w, row, rows, begin, end, n, scale, gradient);
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
