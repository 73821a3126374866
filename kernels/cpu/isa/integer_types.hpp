// Unpacks block-quantised integer weights for byte dot products. A lane is a row of the weight and contains four
// adjacent unsigned indices. The value is step * (index - offset), or step * index + least.
#pragma once

#include <harmonics/abi.h>

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

// Members of a type:
//   kRun: elements per step. kOffset: zero point. kLeast: whether there is a least number (minimum).
//   kSums: number of pairwise products whose sum fits 16 bits; 0: none with unsigned indices.
//   kTurned: whether chunks of x have the runs of each half in the order 0 2 4 6 1 3 5 7, the order of unpacking.
//   kChunkBytes: bytes of 256 elements, a chunk.
//   chunk(rows, sums): calls sums.add(run, indices, steps, leasts) for the runs of a chunk of kWidth rows, in order.
//   The rows are in the file's layout or packed.
//   pack(rows, to): packs a chunk into kPackedBytes.

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

// Blocks of 32; Kind converts the bytes of a block to indices. The chunk is read as lanes of four bytes, scales
// included; blocks that are not aligned to lanes are shifted.
template <typename Kind>
struct IntegerShort : Kind {
  static constexpr int kRun = 32;
  static constexpr bool kTurned = false;
  static constexpr int kBytes = Kind::kBlockBytes;
  static constexpr int64_t kChunkBytes = 8 * kBytes;
  template <typename Sums>
  HM_INLINE static void chunk(const char* const* rows, Sums& sums) {
    vi lanes[2 * kBytes + 4];
    blocks<0>(rows, lanes, sums);
  }

  // Packed layout: lanes of all indices (8-bit ones with the highest bit inverted); fifth bits; steps; leasts.
 private:
  static constexpr int64_t kIndexLanes = Kind::kWhole ? 8 : 4, kVector = 4 * kWidth, kHead = Kind::kPowers ? 1 : 2;
  static constexpr int64_t kFifthsAt = 8 * kIndexLanes * kVector,
                           kStepsAt = kFifthsAt + (Kind::kFifth > 0 ? 8 * kVector : 0),
                           kLeastsAt = kStepsAt + 8 * kHead * kWidth;

 public:
  static constexpr int64_t kPackedBytes = kLeastsAt + (Kind::kLeast ? 16 * kWidth : 0);
  static void pack(const char* const* rows, char* to) {
    for (int64_t b = 0; b < 8; ++b)
      for (int64_t i = 0; i < kWidth; ++i) {
        const char* block = rows[i] + b * kBytes;
        for (int64_t lane = 0; lane < kIndexLanes; ++lane) {
          uint32_t four;
          std::memcpy(&four, block + Kind::kIndices + 4 * lane, 4);
          if (Kind::kWhole) four ^= 0x80808080;
          std::memcpy(to + (b * kIndexLanes + lane) * kVector + 4 * i, &four, 4);
        }
        if (Kind::kFifth > 0) std::memcpy(to + kFifthsAt + b * kVector + 4 * i, block + Kind::kFifth, 4);
        std::memcpy(to + kStepsAt + (b * kWidth + i) * kHead, block, kHead);
        if (Kind::kLeast) std::memcpy(to + kLeastsAt + (b * kWidth + i) * 2, block + 2, 2);
      }
  }
  template <bool kStreamed, typename Sums>
  HM_INLINE static void chunk(PackedLanes<kStreamed> rows, Sums& sums) {
#pragma GCC unroll 1
    for (int b = 0; b < 8; ++b) {
      vi to[8];
      if constexpr (Kind::kWhole) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) to[i] = rows.lane(8 * b + i);
      } else {
        vi flags{};
        if constexpr (Kind::kFifth > 0) flags = rows.lane(8 * kIndexLanes + b);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const vi v = rows.lane(4 * b + i);
          vi low = low_halves(v), high = high_halves(v);
          if constexpr (Kind::kFifth > 0) {
            low |= fifth_of_bits(flags >> 4 * i);
            high |= fifth_of_bits(flags >> (16 + 4 * i));
          }
          to[i] = Kind::index(low);
          to[4 + i] = Kind::index(high);
        }
      }
      const auto halves = [&](int64_t from) {
        rows.fetch(from + 2 * kWidth * b);
        return floats_of_halves(reinterpret_cast<const uint16_t*>(rows.at + from + 2 * kWidth * b));
      };
      vf steps, leasts{};
      if constexpr (Kind::kPowers)
        steps = half_powers(lanes_of_bytes(rows.at + kStepsAt + kWidth * b));
      else
        steps = halves(kStepsAt);
      if constexpr (Kind::kLeast) leasts = halves(kLeastsAt);
      sums.add(b, to, steps, leasts);
    }
  }

 private:
  // Number of calls of turn() for the first n blocks.
  static constexpr int turns(int n) { return (n * kBytes + 15) / 16; }
  template <int from, int to>
  HM_INLINE static void read(const char* const* rows, vi* lanes) {
    if constexpr (from < to) {
      constexpr int kAt = 16 * from + 16 > kChunkBytes ? kChunkBytes - 16 : 16 * from;
      turn(rows, kAt, lanes + kAt / 4);
      read<from + 1, to>(rows, lanes);
    }
  }
  // Returns the four bytes at byte `at`.
  template <int at>
  HM_INLINE static vi four_bytes(const vi* lanes) {
    if constexpr (at % 4 == 0)
      return lanes[at / 4];
    else
      return (vi)((vu)lanes[at / 4] >> at % 4 * 8) | lanes[at / 4 + 1] << (32 - at % 4 * 8);
  }
  template <int at>
  HM_INLINE static vi low_bytes(const vi* lanes) {  // the bytes from `at` in the low bits; the others are undefined
    return (vi)((vu)lanes[at / 4] >> at % 4 * 8);
  }
  template <int b, int i>
  HM_INLINE static void indices(const vi* lanes, vi flags, vi* to) {
    const vi v = four_bytes<b * kBytes + Kind::kIndices + 4 * i>(lanes);
    if constexpr (Kind::kWhole) {
      to[i] = v ^ bytes_of(128);
      if constexpr (i < 7) indices<b, i + 1>(lanes, flags, to);
    } else {
      vi low = low_halves(v), high = high_halves(v);
      if constexpr (Kind::kFifth > 0) {
        low |= fifth_of_bits(flags >> 4 * i);
        high |= fifth_of_bits(flags >> (16 + 4 * i));
      }
      to[i] = Kind::index(low);
      to[4 + i] = Kind::index(high);
      if constexpr (i < 3) indices<b, i + 1>(lanes, flags, to);
    }
  }
  template <int b, typename Sums>
  HM_INLINE static void blocks(const char* const* rows, vi* lanes, Sums& sums) {
    read<turns(b), turns(b + 1)>(rows, lanes);
    vi to[8], flags{};
    if constexpr (Kind::kFifth > 0) flags = four_bytes<b * kBytes + Kind::kFifth>(lanes);
    indices<b, 0>(lanes, flags, to);
    const vi head = low_bytes<b * kBytes>(lanes);
    const vf steps = Kind::kPowers ? half_powers(head) : low_halves_as_floats(head);
    sums.add(b, to, steps, Kind::kLeast ? low_halves_as_floats(low_bytes<b * kBytes + 2>(lanes)) : vf{});
    if constexpr (b < 7) blocks<b + 1>(rows, lanes, sums);
  }
};

struct PlainIndex {
  static constexpr bool kLeast = false, kPowers = false, kWhole = false;
  static constexpr int kFifth = 0;
  HM_INLINE static vi index(vi v) { return v; }
};
struct IntegerEight : PlainIndex {  // q8_0
  static constexpr int kOffset = 128, kSums = 0, kBlockBytes = 34, kIndices = 2;
  static constexpr bool kWhole = true;
};
struct IntegerFour : PlainIndex {  // q4_0
  static constexpr int kOffset = 8, kSums = 8, kBlockBytes = 18, kIndices = 2;
};
struct IntegerFourAndLeast : PlainIndex {  // q4_1
  static constexpr int kOffset = 0, kSums = 8, kBlockBytes = 20, kIndices = 4;
  static constexpr bool kLeast = true;
};
struct IntegerFive : PlainIndex {  // q5_0
  static constexpr int kOffset = 16, kSums = 2, kBlockBytes = 22, kIndices = 6, kFifth = 2;
};
struct IntegerFiveAndLeast : PlainIndex {  // q5_1
  static constexpr int kOffset = 0, kSums = 2, kBlockBytes = 24, kIndices = 8, kFifth = 4;
  static constexpr bool kLeast = true;
};
HM_INLINE __m128i uneven_indices() { return _mm_xor_si128(uneven_steps(), _mm_set1_epi8(-128)); }
struct IntegerUneven : PlainIndex {  // iq4_nl
  static constexpr int kOffset = 128, kSums = 0, kBlockBytes = 18, kIndices = 2;
  HM_INLINE static vi index(vi v) { return look_up_bytes(uneven_indices(), v); }
};
struct IntegerHalfSteps : PlainIndex {  // mxfp4
  static constexpr int kOffset = 12, kSums = 2, kBlockBytes = 17, kIndices = 1;
  static constexpr bool kPowers = true;
  HM_INLINE static vi index(vi v) { return look_up_bytes(_mm_add_epi8(half_steps(), _mm_set1_epi8(12)), v); }
};

// Blocks of 256.
template <int run, int64_t bytes>
struct IntegerLong {
  static constexpr int kRun = run;
  static constexpr bool kTurned = run == 16;
  static constexpr int64_t kChunkBytes = bytes;
  // Packed layout: the bytes in order, padded to whole lanes.
  static constexpr int64_t kLanes = (bytes + 3) / 4, kPackedBytes = kLanes * 4 * kWidth;
  static void pack(const char* const* rows, char* to) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int64_t i = 0; i < kWidth; ++i) {
        uint32_t four = 0;
        std::memcpy(&four, rows[i] + 4 * lane, bytes - 4 * lane < 4 ? static_cast<size_t>(bytes - 4 * lane) : 4);
        std::memcpy(to + (lane * kWidth + i) * 4, &four, 4);
      }
  }
};
HM_INLINE vi byte_of(vi v, int i) { return (vi)((vu)v >> 8 * i) & 255; }

// Scales and minima of q4_k and q5_k.
struct EightPairsOfLanes {
  vf scale, minimum;
  vi steps[2], leasts[2];
  template <typename Rows>
  HM_INLINE explicit EightPairsOfLanes(Rows rows) {
    vi head[4];
    turn(rows, 0, head);
    scale = low_halves_as_floats(head[0]);
    minimum = low_halves_as_floats((vi)((vu)head[0] >> 16));
    const vi six = bytes_of(63), four = bytes_of(15), two = bytes_of(3), a = head[1], b = head[2], c = head[3];
    steps[0] = a & six;
    steps[1] = (c & four) | (a >> 6 & two) << 4;
    leasts[0] = b & six;
    leasts[1] = (c >> 4 & four) | (b >> 6 & two) << 4;
  }
  HM_INLINE vf step(int run) const { return scale * floats(byte_of(steps[run / 4], run % 4)); }
  HM_INLINE vf least(int run) const { return -(minimum * floats(byte_of(leasts[run / 4], run % 4))); }
};

struct IntegerQuarters : IntegerLong<32, 144> {  // q4_k
  static constexpr int kOffset = 0, kSums = 8;
  static constexpr bool kLeast = true;
  template <typename Rows, typename Sums>
  HM_INLINE static void chunk(Rows rows, Sums& sums) {
    const EightPairsOfLanes pairs(rows);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // two runs
      vi v[8], to[8];
      turn(rows, 16 + 32 * i, v);
      turn(rows, 32 + 32 * i, v + 4);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) to[j] = low_halves(v[j]);
      sums.add(2 * i, to, pairs.step(2 * i), pairs.least(2 * i));
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) to[j] = high_halves(v[j]);
      sums.add(2 * i + 1, to, pairs.step(2 * i + 1), pairs.least(2 * i + 1));
    }
  }
};

struct IntegerFiveAndMinima : IntegerLong<32, 176> {  // q5_k
  static constexpr int kOffset = 0, kSums = 2;
  static constexpr bool kLeast = true;
  template <typename Rows, typename Sums>
  HM_INLINE static void chunk(Rows rows, Sums& sums) {
    const EightPairsOfLanes pairs(rows);
    vi fifth[8];
    turn(rows, 16, fifth);
    turn(rows, 32, fifth + 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      vi v[8], to[8];
      turn(rows, 48 + 32 * i, v);
      turn(rows, 64 + 32 * i, v + 4);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) to[j] = low_halves(v[j]) | (fifth[j] >> 2 * i & bytes_of(1)) << 4;
      sums.add(2 * i, to, pairs.step(2 * i), pairs.least(2 * i));
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) to[j] = high_halves(v[j]) | (fifth[j] >> (2 * i + 1) & bytes_of(1)) << 4;
      sums.add(2 * i + 1, to, pairs.step(2 * i + 1), pairs.least(2 * i + 1));
    }
  }
};

// Position in turned chunks of the run 8 * half + 2 * j + part: quarter j of the sixteen bytes `part` of a half.
HM_INLINE constexpr int place(int half, int part, int j) { return 8 * half + 4 * part + j; }
HM_INLINE constexpr int place_of(int run) { return place(run / 8, run % 2, run % 8 / 2); }

struct IntegerSix : IntegerLong<16, 210> {  // q6_k
  static constexpr int kOffset = 32, kSums = 2;
  static constexpr bool kLeast = false;
  template <typename Rows, typename Sums>
  HM_INLINE static void chunk(Rows rows, Sums& sums) {
    vi steps[4];
    turn(rows, 192, steps);
    const vf scale = low_halves_as_floats(two_bytes(rows, 208));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2, part = i % 2;
      vi v[8], high[4];
      turn(rows, 64 * half + 16 * part, v);
      turn(rows, 64 * half + 32 + 16 * part, v + 4);
      turn(rows, 128 + 32 * half + 16 * part, high);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        vi to[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          const vi four = v[j % 2 * 4 + k];
          to[k] = (j < 2 ? low_halves(four) : high_halves(four)) | (high[k] >> 2 * j & bytes_of(3)) << 4;
        }
        const int run = 8 * half + 2 * j + part;
        sums.add(place(half, part, j), to, scale * floats(steps[run / 4] << (24 - run % 4 * 8) >> 24), vf{});
      }
    }
  }
};

struct IntegerTwo : IntegerLong<16, 84> {  // q2_k
  static constexpr int kOffset = 0, kSums = 4;
  static constexpr bool kLeast = true;
  template <typename Rows, typename Sums>
  HM_INLINE static void chunk(Rows rows, Sums& sums) {
    vi pairs[4], head[4];
    turn(rows, 0, pairs);
    turn(rows, 68, head);  // the last lane: both scales
    const vf scale = low_halves_as_floats(head[3]), minimum = low_halves_as_floats((vi)((vu)head[3] >> 16));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2, part = i % 2;
      vi v[4];
      turn(rows, 16 + 16 * i, v);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        vi to[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) to[k] = v[k] >> 2 * j & bytes_of(3);
        const int run = 8 * half + 2 * j + part;
        const vi pair = byte_of(pairs[run / 4], run % 4);
        sums.add(place(half, part, j), to, scale * floats(pair & 15), -(minimum * floats(pair >> 4)));
      }
    }
  }
};

struct IntegerThree : IntegerLong<16, 110> {  // q3_k
  static constexpr int kOffset = 4, kSums = 4;
  static constexpr bool kLeast = false;
  template <typename Rows, typename Sums>
  HM_INLINE static void chunk(Rows rows, Sums& sums) {
    vi third[8], packed[4], steps[4];
    turn_fourteen(rows, 96, packed);  // scales of the runs, and the scale of the block
    const vf scale = low_halves_as_floats(packed[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      steps[i] = (i < 2 ? low_halves(packed[i]) : high_halves(packed[i - 2])) | (packed[2] >> 2 * i & bytes_of(3)) << 4;
    turn(rows, 0, third);
    turn(rows, 16, third + 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2, part = i % 2;
      vi v[4];
      turn(rows, 32 + 16 * i, v);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        vi to[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k)
          to[k] = (v[k] >> 2 * j & bytes_of(3)) | (third[4 * part + k] >> (4 * half + j) & bytes_of(1)) << 2;
        const int run = 8 * half + 2 * j + part;
        sums.add(place(half, part, j), to, scale * floats(byte_of(steps[run / 4], run % 4) - 32), vf{});
      }
    }
  }
};

struct IntegerUnevenRuns : IntegerLong<32, 136> {  // iq4_xs
  static constexpr int kOffset = 128, kSums = 0;
  static constexpr bool kLeast = false;
  template <typename Rows, typename Sums>
  HM_INLINE static void chunk(Rows rows, Sums& sums) {
    vi head[4];
    turn(rows, 0, head);
    const vf scale = low_halves_as_floats(head[0]);
#pragma GCC unroll 8
    for (int run = 0; run < 8; ++run) {
      vi v[4], to[8];
      turn(rows, 8 + 16 * run, v);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        to[j] = look_up_bytes(uneven_indices(), low_halves(v[j]));
        to[4 + j] = look_up_bytes(uneven_indices(), high_halves(v[j]));
      }
      const vi step = ((head[1] >> 4 * run & 15) | (head[0] >> (16 + 2 * run) & 3) << 4) - 32;
      sums.add(run, to, scale * floats(step), vf{});
    }
  }
};

// Calls `then` with an object of the type's class.
template <typename Then>
HM_INLINE void with_integer_type(uint32_t dtype, Then then) {
  switch (dtype) {
    case HX_Q8_0:
      return then(IntegerShort<IntegerEight>{});
    case HX_Q4_0:
      return then(IntegerShort<IntegerFour>{});
    case HX_Q4_1:
      return then(IntegerShort<IntegerFourAndLeast>{});
    case HX_Q5_0:
      return then(IntegerShort<IntegerFive>{});
    case HX_Q5_1:
      return then(IntegerShort<IntegerFiveAndLeast>{});
    case HX_IQ4_NL:
      return then(IntegerShort<IntegerUneven>{});
    case HX_MXFP4:
      return then(IntegerShort<IntegerHalfSteps>{});
    case HX_Q2_K:
      return then(IntegerTwo{});
    case HX_Q3_K:
      return then(IntegerThree{});
    case HX_Q4_K:
      return then(IntegerQuarters{});
    case HX_Q5_K:
      return then(IntegerFiveAndMinima{});
    case HX_Q6_K:
      return then(IntegerSix{});
    default:
      return then(IntegerUnevenRuns{});
  }
}

// The last chunk of kWidth rows, padded with zeros.
struct LastChunk {
  char bytes[kWidth][8 * 34];
  // Copies an incomplete chunk and redirects `rows` to the copy.
  template <typename W>
  void complete(const char** rows, int64_t blocks) {
    if (blocks == 8) return;
    std::memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < kWidth; ++i) {
      std::memcpy(bytes[i], rows[i], static_cast<size_t>(blocks * (W::kChunkBytes / 8)));
      rows[i] = bytes[i];
    }
  }
};

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
