// Bytes of block-quantised integer weights as vectors of lanes: a lane is a row of the weight and contains four
// adjacent bytes or indices of it.
#pragma once

#include <harmonics/abi.h>

#include <cstring>

#include "packed_lanes.hpp"
#include "stored_types.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// 256 unpacked elements of kWidth rows of a weight.
struct IntegerPanel {
  alignas(64) int32_t indices[64][kWidth];
  alignas(64) float steps[16][kWidth], leasts[16][kWidth];  // by run
};

HM_INLINE void put_int(int32_t* p, vi v) { *reinterpret_cast<vi_unaligned*>(p) = v; }
HM_INLINE vi bytes_of(uint8_t byte) { return splat_int(static_cast<int32_t>(byte * 0x01010101u)); }

// Unpacks a chunk into a panel.
template <int kRun>
struct PanelOfRuns {
  static constexpr bool kBytes = false;
  IntegerPanel& to;
  HM_INLINE void add(int run, const vi* indices, vf steps, vf leasts) {
#pragma GCC unroll 8
    for (int i = 0; i < kRun / 4; ++i) put_int(to.indices[run * (kRun / 4) + i], indices[i]);
    store(to.steps[run], steps);
    store(to.leasts[run], leasts);
  }
};

// Loads and transposes the sixteen bytes at `at` of each row: lane i of vector j is bytes 4 j to 4 j + 3 of row i.
HM_INLINE void turn(const char* const* rows, int64_t at, vi* to) {
#if defined(__AVX512F__)
  __m512i v[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_castsi128_si512(load_bytes(rows[i] + at));
    v[i] = _mm512_inserti32x4(v[i], load_bytes(rows[i + 4] + at), 1);
    v[i] = _mm512_inserti32x4(v[i], load_bytes(rows[i + 8] + at), 2);
    v[i] = _mm512_inserti32x4(v[i], load_bytes(rows[i + 12] + at), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpacklo_epi32(v[2], v[3]),
                c = _mm512_unpackhi_epi32(v[0], v[1]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  to[0] = (vi)_mm512_unpacklo_epi64(a, b);
  to[1] = (vi)_mm512_unpackhi_epi64(a, b);
  to[2] = (vi)_mm512_unpacklo_epi64(c, d);
  to[3] = (vi)_mm512_unpackhi_epi64(c, d);
#elif defined(__AVX2__)
  __m256i v[4];
  for (int i = 0; i < 4; ++i)
    v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_bytes(rows[i] + at)), load_bytes(rows[i + 4] + at), 1);
  const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]),
                c = _mm256_unpackhi_epi32(v[0], v[1]), d = _mm256_unpackhi_epi32(v[2], v[3]);
  to[0] = (vi)_mm256_unpacklo_epi64(a, b);
  to[1] = (vi)_mm256_unpackhi_epi64(a, b);
  to[2] = (vi)_mm256_unpacklo_epi64(c, d);
  to[3] = (vi)_mm256_unpackhi_epi64(c, d);
#else
  __m128i v[4];
  for (int i = 0; i < 4; ++i) v[i] = load_bytes(rows[i] + at);
  const __m128i a = _mm_unpacklo_epi32(v[0], v[1]), b = _mm_unpacklo_epi32(v[2], v[3]),
                c = _mm_unpackhi_epi32(v[0], v[1]), d = _mm_unpackhi_epi32(v[2], v[3]);
  to[0] = (vi)_mm_unpacklo_epi64(a, b);
  to[1] = (vi)_mm_unpackhi_epi64(a, b);
  to[2] = (vi)_mm_unpacklo_epi64(c, d);
  to[3] = (vi)_mm_unpackhi_epi64(c, d);
#endif
}

template <bool kStreamed>
HM_INLINE void turn(PackedLanes<kStreamed> rows, int64_t at, vi* to) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) to[j] = rows.lane(at / 4 + j);
}

// Loads the two bytes at `at` of each row into the low bits of its lane; the other bits are undefined.
HM_INLINE vi two_bytes(const char* const* rows, int64_t at) {
  vi last[4];
  turn(rows, at - 14, last);
  return (vi)((vu)last[3] >> 16);
}
template <bool kStreamed>
HM_INLINE vi two_bytes(PackedLanes<kStreamed> rows, int64_t at) {
  return rows.lane(at / 4);
}

// Loads and transposes fourteen bytes: three lanes from `at`, then two bytes in the low bits.
HM_INLINE void turn_fourteen(const char* const* rows, int64_t at, vi* to) {
  turn(rows, at - 2, to);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) to[i] = (vi)((vu)to[i] >> 16) | to[i + 1] << 16;
  to[3] = (vi)((vu)to[3] >> 16);
}
template <bool kStreamed>
HM_INLINE void turn_fourteen(PackedLanes<kStreamed> rows, int64_t at, vi* to) {
  turn(rows, at, to);
}

// Returns byte i of the table for each byte i < 16.
HM_INLINE vi look_up_bytes(__m128i table, vi v) {
#if defined(__AVX512F__)
  return (vi)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), (__m512i)v);
#elif defined(__AVX2__)
  return (vi)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), (__m256i)v);
#else
  return (vi)_mm_shuffle_epi8(table, (__m128i)v);
#endif
}

// Returns the indices of iq4_nl and iq4_xs.
HM_INLINE __m128i uneven_indices() { return _mm_xor_si128(uneven_steps(), _mm_set1_epi8(-128)); }

// Returns 16 in byte j of a lane if its bit j is set.
HM_INLINE vi fifth_of_bits(vi flags) {
#if defined(__AVX512F__)
  const __m512i table =
      _mm512_setr_epi32(0, 0x10, 0x1000, 0x1010, 0x100000, 0x100010, 0x101000, 0x101010, 0x10000000, 0x10000010,
                        0x10001000, 0x10001010, 0x10100000, 0x10100010, 0x10101000, 0x10101010);
  return (vi)_mm512_permutexvar_epi32((__m512i)flags, table);
#else
  const vi x = flags & 15;
  return ((x | x << 7 | x << 14 | x << 21) & bytes_of(1)) << 4;
#endif
}

// Converts the f16 in the low bits of each lane; the other bits are 0.
HM_INLINE vf halves_of_lanes(vi h) {
  const vi size = (h & 0x7fff) << 13;
  const vi moved = bits(as_float(size) * splat(0x1p112f));  // also normalises subnormal numbers
  return as_float((size >= 0x0f800000 ? size | 0x7f800000 : moved) | (h & 0x8000) << 16);
}
HM_INLINE vi choose_int(vi mask, vi a, vi b) { return mask ? a : b; }

HM_INLINE vi low_halves(vi v) { return v & bytes_of(15); }
HM_INLINE vi high_halves(vi v) { return v >> 4 & bytes_of(15); }
HM_INLINE vf floats(vi v) { return __builtin_convertvector(v, vf); }

// Converts the f16 in the low 16 bits of each lane; ignores the other bits.
HM_INLINE vf low_halves_as_floats(vi v) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)v));
#elif defined(__AVX2__)
  const __m256i low = _mm256_and_si256((__m256i)v, _mm256_set1_epi32(0xffff));
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
#else
  return halves_of_lanes(v & 0xffff);
#endif
}

// half_power() of the low byte of each lane.
HM_INLINE vf half_powers(vi v) {
  const vi e = v & 255, number = (e - 1) << 23, small = splat_int(0x00200000) << (e & 1);
  return as_float(choose_int(e == 255, splat_int(0x7fc00000), choose_int(e < 2, small, number)));
}

// Widens kWidth unsigned bytes to lanes.
HM_INLINE vi lanes_of_bytes(const char* p) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepu8_epi32(load_bytes(p));
#elif defined(__AVX2__)
  return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  int32_t four;
  std::memcpy(&four, p, 4);
  return (vi)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four));
#endif
}

// Widens kWidth signed bytes to lanes.
HM_INLINE vi lanes_of_signed_bytes(const char* p) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepi8_epi32(load_bytes(p));
#elif defined(__AVX2__)
  return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  int32_t four;
  std::memcpy(&four, p, 4);
  return (vi)_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four));
#endif
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
