// Moments stored in 16 or 8 bits; engine/functional/stored_moments.hpp defines their bits. Private to the including
// translation unit.
#pragma once

#include <type_traits>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- instructions ---------------------------------------------------------------------------------------------------

// Widening of narrow elements, and saturating packing of four vectors into bytes.
#if defined(__AVX512F__)
typedef __m512i Ints;
template <bool kSigned>
HM_INLINE vi widen_bytes(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return (vi)(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}
HM_INLINE Ints pack_words(vi a, vi b) { return _mm512_packus_epi32((Ints)a, (Ints)b); }
HM_INLINE Ints pack_bytes(Ints a, Ints b) { return _mm512_packus_epi16(a, b); }
HM_INLINE Ints pack_signed_words(vi a, vi b) { return _mm512_packs_epi32((Ints)a, (Ints)b); }
HM_INLINE Ints pack_signed_bytes(Ints a, Ints b) { return _mm512_packs_epi16(a, b); }
HM_INLINE Ints in_order(Ints v) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}
#elif defined(__AVX2__)
typedef __m256i Ints;
template <bool kSigned>
HM_INLINE vi widen_bytes(const void* p) {
  const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  return (vi)(kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
}
HM_INLINE Ints pack_words(vi a, vi b) { return _mm256_packus_epi32((Ints)a, (Ints)b); }
HM_INLINE Ints pack_bytes(Ints a, Ints b) { return _mm256_packus_epi16(a, b); }
HM_INLINE Ints pack_signed_words(vi a, vi b) { return _mm256_packs_epi32((Ints)a, (Ints)b); }
HM_INLINE Ints pack_signed_bytes(Ints a, Ints b) { return _mm256_packs_epi16(a, b); }
HM_INLINE Ints in_order(Ints v) { return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); }
#else
typedef __m128i Ints;
template <bool kSigned>
HM_INLINE vi widen_bytes(const void* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const __m128i bytes = _mm_cvtsi32_si128(four);
  return (vi)(kSigned ? _mm_cvtepi8_epi32(bytes) : _mm_cvtepu8_epi32(bytes));
}
HM_INLINE Ints pack_words(vi a, vi b) { return _mm_packus_epi32((Ints)a, (Ints)b); }
HM_INLINE Ints pack_bytes(Ints a, Ints b) { return _mm_packus_epi16(a, b); }
HM_INLINE Ints pack_signed_words(vi a, vi b) { return _mm_packs_epi32((Ints)a, (Ints)b); }
HM_INLINE Ints pack_signed_bytes(Ints a, Ints b) { return _mm_packs_epi16(a, b); }
HM_INLINE Ints in_order(Ints v) { return v; }
#endif

// Loads n bytes as lanes; the other lanes are zero.
template <bool kSigned>
HM_INLINE vi load_bytes(const uint8_t* p, int64_t n) {
  if (n == kWidth) return widen_bytes<kSigned>(p);
  alignas(16) uint8_t some[kWidth] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = p[i];
  return widen_bytes<kSigned>(some);
}
HM_INLINE void store_bytes(uint8_t* p, Ints v, int64_t n) {
  constexpr auto kAll = static_cast<int64_t>(sizeof v);
  if (n == kAll) return __builtin_memcpy(p, &v, sizeof v), void();
  alignas(64) uint8_t some[sizeof v];
  __builtin_memcpy(some, &v, sizeof v);
  for (int64_t i = 0; i < n; ++i) p[i] = some[i];
}

// ---- random bits ----------------------------------------------------------------------------------------------------

// Random bits of a step: the upper bits for means, the lower bits for squares.
struct RandomBits {
  static constexpr uint32_t kStep = 0x9e3779b1u;
  uint32_t key;
  HM_INLINE explicit RandomBits(uint32_t step) : key(step) {
    key = (key ^ (key >> 16)) * 0x7feb352du;
    key = (key ^ (key >> 15)) * 0x846ca68bu;
    key ^= key >> 16;
  }
  HM_INLINE vu at(int64_t place) const { return (vu)lanes() * kStep + (static_cast<uint32_t>(place) * kStep + key); }
};
template <int kCount>
HM_INLINE vu bits_of(vu random, int moment) {
  return moment == 0 ? random >> (32 - kCount) : random & ((1u << kCount) - 1);
}

// ---- 16 bits --------------------------------------------------------------------------------------------------------

// Rounds to the upper half of each lane by random bits. NaN stays NaN, as by a conversion to bf16.
HM_INLINE vu rounded_up_half(vf v, vu random) {
  const vu own = (vu)bits(v);
  return v == v ? own + random : own | 0x400000u;
}

// Loads and stores elements of a moment, float or bf16.
HM_INLINE vf load_moment(const float* p, int64_t n) { return load_some(p, n); }
HM_INLINE void store_moment(float* p, vf v, int64_t n, vu) { store_some(p, v, n); }
#if defined(__AVX512F__)
// One permutation moves words to or from the upper halves of lanes, instead of a conversion and a shift.
HM_INLINE vf load_moment(const uint16_t* p, int64_t n) {
  const auto mask = static_cast<__mmask16>((1u << n) - 1);
  const __m256i words =
      n == kWidth ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)) : _mm256_maskz_loadu_epi16(mask, p);
  const __m512i places = (__m512i)(lanes() << 16);
  return (vf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, places, _mm512_castsi256_si512(words));
}
HM_INLINE void store_moment(uint16_t* p, vf v, int64_t n, vu random) {
  const __m512i places = (__m512i)((lanes() * 4 + 1) | (lanes() * 4 + 3) << 16);
  const __m256i words = _mm512_castsi512_si256(_mm512_permutexvar_epi16(places, (__m512i)rounded_up_half(v, random)));
  if (n == kWidth) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), words);
}
#else
HM_INLINE vi widen_words(const uint16_t* p) {
#if defined(__AVX2__)
  return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  return (vi)_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#endif
}
HM_INLINE vf load_moment(const uint16_t* p, int64_t n) {
  if (n == kWidth) return as_float(widen_words(p) << 16);
  alignas(16) uint16_t some[kWidth] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = p[i];
  return as_float(widen_words(some) << 16);
}
HM_INLINE void store_moment(uint16_t* p, vf v, int64_t n, vu random) {
  const vi upper = (vi)(rounded_up_half(v, random) >> 16);
  Ints words = pack_words(upper, upper);
#if defined(__AVX2__)
  words = _mm256_permute4x64_epi64(words, 8);
#endif
  constexpr size_t kBytes = kWidth * sizeof(uint16_t);
  if (n == kWidth) return __builtin_memcpy(p, &words, kBytes), void();
  uint16_t some[kWidth];
  __builtin_memcpy(some, &words, kBytes);
  for (int64_t i = 0; i < n; ++i) p[i] = some[i];
}
#endif

// ---- 8 bits ---------------------------------------------------------------------------------------------------------

constexpr int kBlock = 16, kCodeShift = 20;  // rows and columns of a block; fraction bits of f32 that a code drops
// Columns of a piece: the codes of a row fill one cache line, its weights four.
constexpr int64_t kPiece = 64;
constexpr int kPieceBlocks = kPiece / kBlock;
constexpr int64_t kPacked = 4 * kWidth;  // codes encoded together

constexpr int32_t kMagnitudeBits = 0x7fffffff, kInfinityBits = 0x7f800000, kNaNBits = 0x7fc00000;  // bits of f32

HM_INLINE vi larger(vi a, vi b) { return a > b ? a : b; }

// Replaces every NaN of a block by the one whose code stands for NaN.
[[gnu::noinline, gnu::cold]] inline void replace_nan(float* block, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < kBlock; ++j) {
      int32_t word;
      __builtin_memcpy(&word, block + r * kPiece + j, sizeof word);
      if ((word & kMagnitudeBits) > kInfinityBits) __builtin_memcpy(block + r * kPiece + j, &kNaNBits, sizeof kNaNBits);
    }
}

// Format of a code: number of exponents, and whether it has a sign and a zero.
template <int kExponents, bool kSigned>
struct Code {
  // Clamps the scale, which is 0 before the first step.
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
  HM_INLINE static vi size(vf x) { return kSigned ? bits(x) & kMagnitudeBits : bits(x); }
  HM_INLINE static vf decode(const uint8_t* p, int64_t n, int32_t base) {
    const vi code = load_bytes<kSigned>(p, n);
    if constexpr (!kSigned) return as_float((code << kCodeShift) + base);
    const vi number = (code << kCodeShift) & static_cast<int32_t>(0x87f00000);
#if defined(__AVX512F__)
    const __mmask16 some = _mm512_test_epi32_mask((__m512i)code, _mm512_set1_epi32(127));
    return (vf)_mm512_maskz_add_epi32(some, (__m512i)number, _mm512_set1_epi32(base));
#else
    return as_float((number + base) & ~(vi)((code & 127) == 0));
#endif
  }
  // Encodes four vectors. Numbers below the base become negative, and 0 by saturation.
  HM_INLINE static Ints encode(const vf* x, const int32_t* base, const vu* random) {
    vi t[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const vi below = (vi)bits_of<kCodeShift>(random[i], kSigned ? 0 : 1);
      t[i] = ((size(x[i]) - base[i]) + below) >> kCodeShift;
    }
    Ints codes = pack_bytes(pack_words(t[0], t[1]), pack_words(t[2], t[3]));
    if constexpr (kSigned) {
      // Saturation keeps the sign of every float that is not subnormal.
      const Ints signs =
          pack_signed_bytes(pack_signed_words(bits(x[0]), bits(x[1])), pack_signed_words(bits(x[2]), bits(x[3])));
      codes = (Ints)((vi)codes | ((vi)signs & static_cast<int32_t>(0x80808080)));
    }
    return in_order(codes);
  }
};
using MeanCode = Code<16, true>;
using SquareCode = Code<32, false>;
template <int kMoment>
using CodeOf = std::conditional_t<kMoment == 0, MeanCode, SquareCode>;

// Codes and scales before and after a step: of the mean and, if the rule has two moments, of the mean square.
struct CodedMoments {
  const uint8_t *old[2], *old_scale[2];
  uint8_t *now[2], *now_scale[2];
};

// Weights [..., n] with their coded moments.
struct CodedWeights {
  const float* w;
  float* new_w;
  CodedMoments moments;
  int64_t n;
  RandomBits random;
};

template <int kMoment>
HM_INLINE void encode_row(const CodedMoments& m, const float* from, const int32_t* base, const vu* random, int64_t at,
                          int64_t n) {
  vf x[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) x[i] = load(from + i * kWidth);
  store_bytes(m.now[kMoment] + at, CodeOf<kMoment>::encode(x, base, random), n);
}

// Updates `rows` <= 16 rows from `row`, columns [begin, end): at most kPiece, beginning at a block. kFull: kPiece
// columns. gradient(r, j, lanes, w) returns the gradient of row + r, columns from j.
template <bool kFull, typename Rule, typename Gradient>
HM_INLINE void update_piece(const Rule& rule, const CodedWeights& c, int64_t row, int64_t rows, int64_t begin,
                            int64_t end, const Gradient& gradient) {
  constexpr int kMoments = Rule::kMoments, kInPiece = static_cast<int>(kPiece / kWidth),
                kInBlock = static_cast<int>(kBlock / kWidth);
  alignas(64) float kept[kMoments][kBlock][kPiece];
  if constexpr (!kFull) __builtin_memset(kept, 0, sizeof kept);
  const CodedMoments& m = c.moments;
  const int64_t first = row / kBlock * ((c.n + kBlock - 1) / kBlock) + begin / kBlock;
  const int blocks = kFull ? kPieceBlocks : static_cast<int>((end - begin + kBlock - 1) / kBlock);
  int32_t base[2][kPieceBlocks];
  vi most[2][kPieceBlocks] = {};
  for (int b = 0; b < blocks; ++b) {
    base[0][b] = MeanCode::base(m.old_scale[0][first + b]);
    if constexpr (kMoments > 1) base[1][b] = SquareCode::base(m.old_scale[1][first + b]);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * c.n + begin;
    if constexpr (kFull) {  // the next piece
      for (int64_t j = 0; j < kPiece; j += 16) __builtin_prefetch(c.w + at + kPiece + j, 0, 2);
      for (int k = 0; k < kMoments; ++k) __builtin_prefetch(m.old[k] + at + kPiece, 0, 2);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kInPiece; ++v) {
      const int64_t j = v * kWidth, left = end - begin - j, some = kFull || left > kWidth ? kWidth : left;
      if (!kFull && left <= 0) break;
      const int b = v / kInBlock;
      vf now[kMoments];
      now[0] = MeanCode::decode(m.old[0] + at + j, some, base[0][b]);
      if constexpr (kMoments > 1) now[1] = SquareCode::decode(m.old[1] + at + j, some, base[1][b]);
      const vf weight = load_some(c.w + at + j, some);
      store_some(c.new_w + at + j, rule.step(weight, gradient(r, begin + j, some, weight), now), some);
      store(kept[0][r] + j, now[0]);
      most[0][b] = larger(most[0][b], bits(now[0]) & kMagnitudeBits);
      if constexpr (kMoments > 1) {
        store(kept[1][r] + j, now[1]);
        most[1][b] = larger(most[1][b], bits(now[1]) & kMagnitudeBits);
      }
    }
  }
  int32_t next[2][kInPiece] = {};
  for (int b = 0; b < blocks; ++b) {
    for (int k = 0; k < kMoments; ++k)
      if (any(most[k][b] > kInfinityBits)) {
        replace_nan(kept[k][0] + b * kBlock, rows);
        most[k][b] = vi{} + kNaNBits;
      }
    const uint8_t mean = MeanCode::scale(most[0][b]);
    m.now_scale[0][first + b] = mean;
    for (int v = 0; v < kInBlock; ++v) next[0][b * kInBlock + v] = MeanCode::base(mean);
    if constexpr (kMoments > 1) {
      const uint8_t square = SquareCode::scale(most[1][b]);
      m.now_scale[1][first + b] = square;
      for (int v = 0; v < kInBlock; ++v) next[1][b * kInBlock + v] = SquareCode::base(square);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * c.n + begin;
    vu random = c.random.at(at);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kPiece; j += kPacked) {
      const int64_t left = end - begin - j, some = kFull || left > kPacked ? kPacked : left;
      if (!kFull && left <= 0) break;
      vu own[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) own[i] = random, random = random + static_cast<uint32_t>(kWidth) * RandomBits::kStep;
      encode_row<0>(m, kept[0][r] + j, next[0] + j / kWidth, own, at + j, some);
      if constexpr (kMoments > 1) encode_row<1>(m, kept[1][r] + j, next[1] + j / kWidth, own, at + j, some);
    }
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
