// Steps of Adam and AdamW with coded moments, by pieces of 16 rows and 64 columns. Private to the including translation
// unit.
//
// A code is decoded without its block's scale, to a float whose exponent is that of the code plus a constant. The
// scales are folded into the factors of the rule. They are powers of two, so moments have the bits of update_piece().
#pragma once

#include "update_rules.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Stored gradients. at() returns a vector of row r from column j; scaled() returns it divided by its block's scale.
template <typename Load>
struct LoadedGradient {
  Load load_from;  // (r, j, lanes)
  HM_INLINE vf at(int64_t r, int64_t j, int64_t lanes, vf) const { return load_from(r, j, lanes); }
  HM_INLINE void scale(int64_t, const float*) {}
  HM_INLINE vf scaled(int64_t r, int64_t j, int64_t, const float* inverse, vf) const {
    return load_from(r, j, kWidth) * *inverse;
  }
};
template <typename Load>
LoadedGradient(Load) -> LoadedGradient<Load>;  // clang 14 deduces none for aggregates

// The gradient of a single sample, a b^T. kGradient: also accumulates w b for each of 16 rows.
template <bool kGradient>
struct OuterGradient {
  const float *a, *b;  // a: of the first row
  vf* sums;
  alignas(64) float scaled_b[kPiece];
  HM_INLINE vf at(int64_t r, int64_t j, int64_t lanes, vf weight) const {
    const vf y = load_some(b + j, lanes);
    if (kGradient) sums[r] = fma(weight, y, sums[r]);
    return a[r] * y;
  }
  HM_INLINE void scale(int64_t j, const float* inverse) {
    for (int64_t v = 0; v < kPiece; v += kWidth) store(scaled_b + v, load(b + j + v) * inverse[v / kBlock]);
  }
  HM_INLINE vf scaled(int64_t r, int64_t j, int64_t v, const float*, vf weight) const {
    if (kGradient) sums[r] = fma(weight, load(b + j), sums[r]);
    return a[r] * load(scaled_b + v);
  }
};

#if defined(__AVX512F__)
// Lowest biased exponent of decoded numbers.
constexpr int kLowest = 96;

// Scales of the four blocks of a piece, and the factors of the rule that depend on them.
struct BlockUnits {
  alignas(16) float inverse[kPieceBlocks], rest2[kPieceBlocks], root[kPieceBlocks], epsilon[kPieceBlocks];
  alignas(16) int32_t mean[kPieceBlocks], square[kPieceBlocks];  // exponents of the scales

  HM_INLINE static __m128i four_scales(const uint8_t* p, int exponents) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof bytes);
    const __m128i scale = _mm_max_epi32(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)), _mm_set1_epi32(exponents));
    return _mm_sub_epi32(scale, _mm_set1_epi32(exponents - 1 + kLowest));
  }
  HM_INLINE static __m128 power(__m128i exponent) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(exponent, _mm_set1_epi32(127)), 23));
  }
  HM_INLINE static __mmask8 is_within(__m128i x, int least, int most) {
    return _mm_cmpge_epi32_mask(x, _mm_set1_epi32(least)) & _mm_cmple_epi32_mask(x, _mm_set1_epi32(most));
  }
  // Returns false if a factor would not be a normal float.
  HM_INLINE bool set(const AdamRule<true>& rule, const uint8_t* mean_scales, const uint8_t* square_scales) {
    const __m128i m = four_scales(mean_scales, 16), v = four_scales(square_scales, 32);
    const __m128i ratio = _mm_sub_epi32(_mm_add_epi32(m, m), v);
    if ((is_within(m, -48, 48) & is_within(v, -88, 80) & is_within(ratio, -100, 100)) != 15) return false;
    const __m128 smaller = power(_mm_sub_epi32(_mm_setzero_si128(), m));
    // The square root of the scale of the squares.
    const __m128 odd =
        _mm_mask_blend_ps(_mm_test_epi32_mask(v, _mm_set1_epi32(1)), _mm_set1_ps(1), _mm_set1_ps(1.41421356f));
    const __m128 unit_root = _mm_mul_ps(power(_mm_sub_epi32(_mm_srai_epi32(v, 1), m)), odd);
    _mm_store_ps(inverse, smaller);
    _mm_store_ps(rest2, _mm_mul_ps(_mm_set1_ps(rule.rest2), power(ratio)));
    _mm_store_ps(root, _mm_mul_ps(unit_root, _mm_set1_ps(rule.scale / rule.size)));
    _mm_store_ps(epsilon, _mm_mul_ps(smaller, _mm_set1_ps(rule.epsilon / rule.size)));
    _mm_store_si128(reinterpret_cast<__m128i*>(mean), m);
    _mm_store_si128(reinterpret_cast<__m128i*>(square), v);
    return true;
  }
};

// Returns the largest lane of each of four non-negative vectors.
HM_INLINE __m128i largest_of(const vf* x) {
  const __m512 a = _mm512_max_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1])),
               b = _mm512_max_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)),
                high = _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
  const __m512 four = _mm512_max_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
  const __m256 two = _mm256_max_ps(_mm512_castps512_ps256(four), _mm512_extractf32x8_ps(four, 1));
  return _mm_castps_si128(_mm_max_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1)));
}
// Stores four scales. Sets the base of the codes of each block, as upper halves of floats.
HM_INLINE void put_scales(uint8_t* to, __m128i most, const int32_t* unit, int exponents, int32_t* base) {
  const __m128i least = _mm_set1_epi32(exponents), units = _mm_load_si128(reinterpret_cast<const __m128i*>(unit));
  const __m128i reach = _mm_srli_epi32(_mm_add_epi32(most, _mm_set1_epi32((1 << kCodeShift) - 1)), 23);
  const __m128i scale = _mm_mask_mov_epi32(_mm_max_epi32(_mm_add_epi32(reach, units), least),
                                           _mm_cmpeq_epi32_mask(most, _mm_setzero_si128()), least);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_cvtepi32_epi8(scale));
  __builtin_memcpy(to, &bytes, sizeof bytes);
  const __m128i field = _mm_sub_epi32(_mm_sub_epi32(scale, units), _mm_set1_epi32(exponents - 1));
  _mm_store_si128(reinterpret_cast<__m128i*>(base), _mm_slli_epi32(_mm_max_epi32(field, _mm_setzero_si128()), 23 - 16));
}
// Returns the bases of two blocks in the order of upper_halves().
HM_INLINE __m512i base_words(const int32_t* base) { return _mm512_set1_epi32(base[0] | base[1] << 16); }

// On Zen 4 a broadcast load takes a shuffle, and saturating subtraction and tests take the units that multiply.

HM_INLINE vf decode_mean(const uint8_t* p) {
  const __mmask16 some = _mm_test_epi8_mask(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(127));
  const __m512i code = _mm512_slli_epi32((__m512i)widen_bytes<true>(p), kCodeShift);
  return (vf)_mm512_maskz_ternarylogic_epi32(some, code, _mm512_set1_epi32(static_cast<int32_t>(0x87f00000)),
                                             _mm512_set1_epi32(kLowest << 23), 0xea);  // (a & b) | c
}
// Decodes the squares of four blocks, 64 codes: byte b of lane i becomes code i of block b, and is shifted to its
// place.
HM_INLINE void decode_squares(const uint8_t* p, vf (&square)[kPieceBlocks]) {
  const __m128i columns = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i codes = _mm512_shuffle_epi8(in_order(_mm512_loadu_si512(p)), _mm512_broadcast_i32x4(columns));
  const auto decode = [](__m512i code) __attribute__((always_inline)) {
    return (vf)_mm512_ternarylogic_epi32(code, _mm512_set1_epi32(0xff << kCodeShift), _mm512_set1_epi32(kLowest << 23),
                                         0xea);  // (a & b) | c
  };
  square[0] = decode(_mm512_slli_epi32(codes, kCodeShift));
  square[1] = decode(_mm512_slli_epi32(codes, kCodeShift - 8));
  square[2] = decode(_mm512_slli_epi32(codes, kCodeShift - 16));
  square[3] = decode(_mm512_srli_epi32(codes, 24 - kCodeShift));
}

// Returns the upper halves of the lanes of a and b, alternating.
HM_INLINE __m512i upper_halves(vu a, vu b) {
  const __m128i places = _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15);
  return _mm512_mask_shuffle_epi8((__m512i)b, 0x3333333333333333, (__m512i)a, _mm512_broadcast_i32x4(places));
}
// Returns the codes of two blocks. Numbers below the base become negative, and 0 by the saturation of pack_bytes().
HM_INLINE __m512i codes_above(__m512i base, __m512i halves) {
  return _mm512_srai_epi16(_mm512_sub_epi16(halves, base), kCodeShift - 16);
}
// Returns the bytes of four blocks from those of two pairs of blocks, packed.
HM_INLINE __m512i blocks_in_order(__m512i pairs) {
  const __m128i even_and_odd = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  return in_order(_mm512_shuffle_epi8(pairs, _mm512_broadcast_i32x4(even_and_odd)));
}

// Updates `rows` rows from `row`, columns [begin, begin + kPiece). Returns false and changes nothing if a block's scale
// is too far from 1.
template <typename Gradient>
HM_INLINE bool update_piece_in_units(const AdamRule<true>& rule, const CodedWeights& c, int64_t row, int64_t rows,
                                     int64_t begin, Gradient& gradient) {
  // Upper halves of rounded numbers: the blocks of a pair alternate.
  alignas(64) uint16_t means[kBlock][kPiece], squares[kBlock][kPiece];
  constexpr int kPairs = kPieceBlocks / 2;
  const CodedMoments& m = c.moments;
  const int64_t first = row / kBlock * ((c.n + kBlock - 1) / kBlock) + begin / kBlock;
  BlockUnits units;
  if (!units.set(rule, m.old_scale[0] + first, m.old_scale[1] + first)) return false;
  gradient.scale(begin, units.inverse);
  const vf keep = splat(rule.shrink ? rule.keep : 1), rest1 = splat(rule.rest1), beta2 = splat(rule.beta2);
  vf most[2][kPieceBlocks] = {};
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * c.n + begin;
    for (int64_t j = 0; j < kPiece; j += 16) __builtin_prefetch(c.w + at + kPiece + j, 0, 2);  // the next piece
    for (int k = 0; k < 2; ++k) __builtin_prefetch(m.old[k] + at + kPiece, 0, 2);
    // Interleaves the four blocks: each operation for all of them, as in AdamRule::step_together().
    vf mean[kPieceBlocks], square[kPieceBlocks], weight[kPieceBlocks], g[kPieceBlocks], step[kPieceBlocks];
    const auto each = [](auto run) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int b = 0; b < kPieceBlocks; ++b) run(b, int64_t{b} * kBlock);
    };
    each([&](int b, int64_t j) __attribute__((always_inline)) { mean[b] = decode_mean(m.old[0] + at + j); });
    decode_squares(m.old[1] + at, square);
    each([&](int b, int64_t j) __attribute__((always_inline)) {
      weight[b] = load(c.w + at + j);
      g[b] = gradient.scaled(r, begin + j, j, units.inverse + b, weight[b]);
    });
    each([&](int b, int64_t) __attribute__((always_inline)) { square[b] = square[b] * beta2; });
    each([&](int b, int64_t) __attribute__((always_inline)) { mean[b] = fma(g[b] - mean[b], rest1, mean[b]); });
    each([&](int b, int64_t)
             __attribute__((always_inline)) { square[b] = fma(g[b] * g[b], splat(units.rest2[b]), square[b]); });
    each([&](int b, int64_t) __attribute__((always_inline)) { step[b] = _mm512_rsqrt14_ps(square[b]); });
    each([&](int b, int64_t) __attribute__((always_inline)) {
      most[0][b] = _mm512_range_ps(most[0][b], mean[b], 11);  // the larger magnitude, positive
      most[1][b] = vmax(most[1][b], square[b]);
    });
    each([&](int b, int64_t) __attribute__((always_inline)) { step[b] = square[b] * step[b]; });
    each([&](int b, int64_t)
             __attribute__((always_inline)) { step[b] = fma(step[b], splat(units.root[b]), splat(units.epsilon[b])); });
    each([&](int b, int64_t) __attribute__((always_inline)) { step[b] = _mm512_rcp14_ps(step[b]); });
    each([&](int b, int64_t j)
             __attribute__((always_inline)) { store(c.new_w + at + j, fnma(mean[b], step[b], weight[b] * keep)); });
    vu random = c.random.at(at), rounded[2][kPieceBlocks];
    each([&](int b, int64_t) __attribute__((always_inline)) {
      rounded[0][b] = (vu)bits(mean[b]) + bits_of<kCodeShift>(random, 0);
      rounded[1][b] = (vu)bits(square[b]) + bits_of<kCodeShift>(random, 1);
      random = random + static_cast<uint32_t>(kWidth) * RandomBits::kStep;
    });
#pragma GCC unroll 2
    for (int h = 0; h < kPairs; ++h) {
      const int64_t j = int64_t{h} * 2 * kBlock;
      _mm512_store_si512(means[r] + j, upper_halves(rounded[0][2 * h], rounded[0][2 * h + 1]));
      _mm512_store_si512(squares[r] + j, upper_halves(rounded[1][2 * h], rounded[1][2 * h + 1]));
    }
  }
  alignas(16) int32_t base[2][kPieceBlocks];
  put_scales(m.now_scale[0] + first, largest_of(most[0]), units.mean, 16, base[0]);
  put_scales(m.now_scale[1] + first, largest_of(most[1]), units.square, 32, base[1]);
  const __m512i mean_base[2] = {base_words(base[0]), base_words(base[0] + 2)},
                square_base[2] = {base_words(base[1]), base_words(base[1] + 2)};
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * c.n + begin;
    __m512i word[kPairs], mean[kPairs], square[kPairs];
#pragma GCC unroll 2
    for (int h = 0; h < kPairs; ++h) {
      const int64_t j = int64_t{h} * 2 * kBlock;
      word[h] = _mm512_load_si512(means[r] + j);
      mean[h] = codes_above(mean_base[h], _mm512_and_si512(word[h], _mm512_set1_epi16(0x7fff)));
      square[h] = codes_above(square_base[h], _mm512_load_si512(squares[r] + j));
    }
    // Saturation keeps the sign of every word.
    const __m512i signs = pack_signed_bytes(word[0], word[1]);
    const __m512i codes = _mm512_ternarylogic_epi64(pack_bytes(mean[0], mean[1]), signs, _mm512_set1_epi8(-128),
                                                    0xf8);  // a | (b & c)
    store_bytes(m.now[0] + at, blocks_in_order(codes), kPiece);
    store_bytes(m.now[1] + at, blocks_in_order(pack_bytes(square[0], square[1])), kPiece);
  }
  return true;
}
#endif

// Updates rows [row, row + rows) of one row of blocks, columns [begin, end); `begin` is the first column of a block.
template <typename Rule, typename Gradient>
HM_INLINE void update_blocks(const Rule& rule, const CodedWeights& c, int64_t row, int64_t rows, int64_t begin,
                             int64_t end, Gradient&& gradient) {
  const auto plain = [&](int64_t r, int64_t j, int64_t lanes, vf weight) __attribute__((always_inline)) {
    return gradient.at(r, j, lanes, weight);
  };
  for (; begin + kPiece <= end; begin += kPiece) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<Rule, AdamRule<true>>)
      if (rule.estimates && !rule.penalise && rule.beta2 >= 0x1p-60f &&
          update_piece_in_units(rule, c, row, rows, begin, gradient))
        continue;
#endif
    update_piece<true>(rule, c, row, rows, begin, begin + kPiece, plain);
  }
  if (begin < end) update_piece<false>(rule, c, row, rows, begin, end, plain);
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
