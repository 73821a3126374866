// Blocks of whole numbers unpacked for products of bytes: a lane is a row of the weight, and holds four neighbouring
// indices. An index counts from 0; the number is step * (index - offset), or step * index + least.
#pragma once

#include "stored_types.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// 256 elements of kWidth rows of a weight.
struct IntegerPanel {
  alignas(64) int32_t indices[64][kWidth];
  alignas(64) float steps[16][kWidth], leasts[16][kWidth];  // by run
};

HM_INLINE void put_int(int32_t* p, vi v) { *reinterpret_cast<vi_unaligned*>(p) = v; }
HM_INLINE vi bytes_of(uint8_t byte) { return splat_int(static_cast<int32_t>(byte * 0x01010101u)); }

// The sixteen bytes at `at` of each row: lane i of vector j has bytes 4 j to 4 j + 3 of row i.
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

// Byte i of the table for each byte i < 16.
HM_INLINE vi look_up_bytes(__m128i table, vi v) {
#if defined(__AVX512F__)
  return (vi)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), (__m512i)v);
#elif defined(__AVX2__)
  return (vi)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), (__m256i)v);
#else
  return (vi)_mm_shuffle_epi8(table, (__m128i)v);
#endif
}

// 16 in byte j of a lane whose bit j is set.
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

// The f16 in the low bits of each lane.
HM_INLINE vf halves_of_lanes(vi h) {
  const vi size = (h & 0x7fff) << 13;
  const vi moved = bits(as_float(size) * splat(0x1p112f));  // also of subnormal numbers
  return as_float((size >= 0x0f800000 ? size | 0x7f800000 : moved) | (h & 0x8000) << 16);
}

HM_INLINE void collect(const char* const* rows, int64_t at, uint16_t* to) {
  for (int i = 0; i < kWidth; ++i) to[i] = load_u16(rows[i] + at);
}
HM_INLINE vi low_halves(vi v) { return v & bytes_of(15); }
HM_INLINE vi high_halves(vi v) { return v >> 4 & bytes_of(15); }
HM_INLINE vf floats(vi v) { return __builtin_convertvector(v, vf); }

// What a type says: kRun, elements with one step; kOffset; kLeast, whether there is a least number; kSums, how many
// products of pairs fit 16 bits when added, 0: none unless indices are signed; the bytes of 256 elements.
struct IntegerEight {  // q8_0
  static constexpr int kRun = 32, kOffset = 128, kSums = 0;
  static constexpr bool kLeast = false;
  static constexpr int64_t kChunkBytes = 8 * 34;
  static void unpack(const char* const* rows, int64_t blocks, IntegerPanel& to) {
    alignas(64) uint16_t halves[8][kWidth < 8 ? 8 : kWidth];
    for (int64_t b = 0; b < blocks; ++b) collect(rows, 34 * b, halves[b]);
    for (int64_t b = 0; b < blocks; ++b) {
      vi v[8];
      turn(rows, 34 * b + 2, v);
      turn(rows, 34 * b + 18, v + 4);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) put_int(to.indices[8 * b + i], v[i] ^ bytes_of(128));
    }
    for (int64_t b = 0; b < blocks; ++b) store(to.steps[b], floats_of_halves(halves[b]));
  }
};

// Blocks of 32 in sixteen bytes: Kind makes indices of their halves.
template <typename Kind>
struct IntegerShort : Kind {
  static constexpr int kRun = 32;
  static constexpr int64_t kChunkBytes = 8 * Kind::kBytes;
  static void unpack(const char* const* rows, int64_t blocks, IntegerPanel& to) {
    alignas(64) uint16_t steps[8][kWidth < 8 ? 8 : kWidth], leasts[8][kWidth < 8 ? 8 : kWidth];
    alignas(64) int32_t fifth[8][kWidth];
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t at = Kind::kBytes * b;
      if constexpr (Kind::kPowers)
        for (int i = 0; i < kWidth; ++i) to.steps[b][i] = half_power(rows[i][at]);
      else
        collect(rows, at, steps[b]);
      if constexpr (Kind::kLeast) collect(rows, at + 2, leasts[b]);
      if constexpr (Kind::kFifth > 0)
        for (int i = 0; i < kWidth; ++i) std::memcpy(&fifth[b][i], rows[i] + at + Kind::kFifth, 4);
    }
    for (int64_t b = 0; b < blocks; ++b) {
      vi v[4];
      turn(rows, Kind::kBytes * b + Kind::kIndices, v);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        vi low = low_halves(v[i]), high = high_halves(v[i]);
        if constexpr (Kind::kFifth > 0) {
          const vi flags = load_int(fifth[b]);
          low |= fifth_of_bits(flags >> 4 * i);
          high |= fifth_of_bits(flags >> (16 + 4 * i));
        }
        put_int(to.indices[8 * b + i], Kind::index(low));
        put_int(to.indices[8 * b + 4 + i], Kind::index(high));
      }
    }
    for (int64_t b = 0; b < blocks; ++b) {
      if constexpr (!Kind::kPowers) store(to.steps[b], floats_of_halves(steps[b]));
      if constexpr (Kind::kLeast) store(to.leasts[b], floats_of_halves(leasts[b]));
    }
  }
};

struct PlainIndex {
  static constexpr bool kLeast = false, kPowers = false;
  static constexpr int64_t kFifth = 0;
  HM_INLINE static vi index(vi v) { return v; }
};
struct IntegerFour : PlainIndex {  // q4_0
  static constexpr int kOffset = 8, kSums = 8;
  static constexpr int64_t kBytes = 18, kIndices = 2;
};
struct IntegerFourAndLeast : PlainIndex {  // q4_1
  static constexpr int kOffset = 0, kSums = 8;
  static constexpr bool kLeast = true;
  static constexpr int64_t kBytes = 20, kIndices = 4;
};
struct IntegerFive : PlainIndex {  // q5_0
  static constexpr int kOffset = 16, kSums = 2;
  static constexpr int64_t kBytes = 22, kIndices = 6, kFifth = 2;
};
struct IntegerFiveAndLeast : PlainIndex {  // q5_1
  static constexpr int kOffset = 0, kSums = 2;
  static constexpr bool kLeast = true;
  static constexpr int64_t kBytes = 24, kIndices = 8, kFifth = 4;
};
HM_INLINE __m128i uneven_indices() { return _mm_xor_si128(uneven_steps(), _mm_set1_epi8(-128)); }
struct IntegerUneven : PlainIndex {  // iq4_nl
  static constexpr int kOffset = 128, kSums = 0;
  static constexpr int64_t kBytes = 18, kIndices = 2;
  HM_INLINE static vi index(vi v) { return look_up_bytes(uneven_indices(), v); }
};
struct IntegerHalfSteps : PlainIndex {  // mxfp4
  static constexpr int kOffset = 12, kSums = 2;
  static constexpr bool kPowers = true;
  static constexpr int64_t kBytes = 17, kIndices = 1;
  HM_INLINE static vi index(vi v) { return look_up_bytes(_mm_add_epi8(half_steps(), _mm_set1_epi8(12)), v); }
};

// Steps and leasts of q4_k and q5_k.
HM_INLINE void unpack_pairs(const char* const* rows, IntegerPanel& to) {
  vi head[4];
  turn(rows, 0, head);
  const vf scale = halves_of_lanes(head[0] & 0xffff), minimum = halves_of_lanes(head[0] >> 16 & 0xffff);
  const vi six = bytes_of(63), four = bytes_of(15), two = bytes_of(3), a = head[1], b = head[2], c = head[3];
  const vi steps[2] = {a & six, (c & four) | (a >> 6 & two) << 4},
           leasts[2] = {b & six, (c >> 4 & four) | (b >> 6 & two) << 4};
#pragma GCC unroll 8
  for (int run = 0; run < 8; ++run) {
    store(to.steps[run], scale * floats(steps[run / 4] >> 8 * (run % 4) & 255));
    store(to.leasts[run], -(minimum * floats(leasts[run / 4] >> 8 * (run % 4) & 255)));
  }
}

struct IntegerQuarters {  // q4_k
  static constexpr int kRun = 32, kOffset = 0, kSums = 8;
  static constexpr bool kLeast = true;
  static constexpr int64_t kChunkBytes = 144;
  static void unpack(const char* const* rows, int64_t, IntegerPanel& to) {
    unpack_pairs(rows, to);
#pragma GCC unroll 1
    for (int i = 0; i < 8; ++i) {  // halves of two runs of 32
      vi v[4];
      turn(rows, 16 + 16 * i, v);
      const int at = i / 2 * 16 + i % 2 * 4;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        put_int(to.indices[at + j], low_halves(v[j]));
        put_int(to.indices[at + 8 + j], high_halves(v[j]));
      }
    }
  }
};

struct IntegerFiveAndMinima {  // q5_k
  static constexpr int kRun = 32, kOffset = 0, kSums = 2;
  static constexpr bool kLeast = true;
  static constexpr int64_t kChunkBytes = 176;
  static void unpack(const char* const* rows, int64_t, IntegerPanel& to) {
    unpack_pairs(rows, to);
    vi fifth[8];
    turn(rows, 16, fifth);
    turn(rows, 32, fifth + 4);
#pragma GCC unroll 1
    for (int i = 0; i < 8; ++i) {
      vi v[4];
      turn(rows, 48 + 16 * i, v);
      const int at = i / 2 * 16 + i % 2 * 4, run = i / 2 * 2;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const vi flags = fifth[i % 2 * 4 + j] >> run;
        put_int(to.indices[at + j], low_halves(v[j]) | (flags & bytes_of(1)) << 4);
        put_int(to.indices[at + 8 + j], high_halves(v[j]) | (flags >> 1 & bytes_of(1)) << 4);
      }
    }
  }
};

struct IntegerSix {  // q6_k
  static constexpr int kRun = 16, kOffset = 32, kSums = 2;
  static constexpr bool kLeast = false;
  static constexpr int64_t kChunkBytes = 210;
  static void unpack(const char* const* rows, int64_t, IntegerPanel& to) {
    alignas(64) uint16_t halves[kWidth < 8 ? 8 : kWidth];
    collect(rows, 208, halves);
#pragma GCC unroll 1
    for (int i = 0; i < 4; ++i) {  // sixteen high pairs of a half block
      const int half = i / 2, part = i % 2;
      vi low[4], next[4], high[4];
      turn(rows, 64 * half + 16 * part, low);
      turn(rows, 64 * half + 32 + 16 * part, next);
      turn(rows, 128 + 32 * half + 16 * part, high);
      const int at = 32 * half + 4 * part;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const vi two = bytes_of(3), h = high[j];
        put_int(to.indices[at + j], low_halves(low[j]) | (h & two) << 4);
        put_int(to.indices[at + 8 + j], low_halves(next[j]) | (h >> 2 & two) << 4);
        put_int(to.indices[at + 16 + j], high_halves(low[j]) | (h >> 4 & two) << 4);
        put_int(to.indices[at + 24 + j], high_halves(next[j]) | (h >> 6 & two) << 4);
      }
    }
    const vf scale = floats_of_halves(halves);
    vi steps[4];
    turn(rows, 192, steps);
#pragma GCC unroll 16
    for (int run = 0; run < 16; ++run) store(to.steps[run], scale * floats(steps[run / 4] << (24 - run % 4 * 8) >> 24));
  }
};

struct IntegerTwo {  // q2_k
  static constexpr int kRun = 16, kOffset = 0, kSums = 4;
  static constexpr bool kLeast = true;
  static constexpr int64_t kChunkBytes = 84;
  static void unpack(const char* const* rows, int64_t, IntegerPanel& to) {
    alignas(64) uint16_t steps[kWidth < 8 ? 8 : kWidth], leasts[kWidth < 8 ? 8 : kWidth];
    collect(rows, 80, steps);
    collect(rows, 82, leasts);
#pragma GCC unroll 1
    for (int i = 0; i < 4; ++i) {
      vi v[4];
      turn(rows, 16 + 16 * i, v);
      const int at = i / 2 * 32 + i % 2 * 4;
#pragma GCC unroll 16
      for (int j = 0; j < 16; ++j) put_int(to.indices[at + j / 4 * 8 + j % 4], v[j % 4] >> j / 4 * 2 & bytes_of(3));
    }
    const vf scale = floats_of_halves(steps), minimum = floats_of_halves(leasts);
    vi pairs[4];
    turn(rows, 0, pairs);
#pragma GCC unroll 16
    for (int run = 0; run < 16; ++run) {
      const vi pair = pairs[run / 4] >> run % 4 * 8;
      store(to.steps[run], scale * floats(pair & 15));
      store(to.leasts[run], -(minimum * floats(pair >> 4 & 15)));
    }
  }
};

struct IntegerThree {  // q3_k
  static constexpr int kRun = 16, kOffset = 4, kSums = 4;
  static constexpr bool kLeast = false;
  static constexpr int64_t kChunkBytes = 110;
  static void unpack(const char* const* rows, int64_t, IntegerPanel& to) {
    alignas(64) uint16_t halves[kWidth < 8 ? 8 : kWidth];
    collect(rows, 108, halves);
    vi third[8];
    turn(rows, 0, third);
    turn(rows, 16, third + 4);
#pragma GCC unroll 1
    for (int i = 0; i < 4; ++i) {
      vi v[4];
      turn(rows, 32 + 16 * i, v);
      const int half = i / 2, part = i % 2, at = 32 * half + 4 * part;
#pragma GCC unroll 16
      for (int j = 0; j < 16; ++j) {
        const vi flags = third[4 * part + j % 4] >> (4 * half + j / 4);
        put_int(to.indices[at + j / 4 * 8 + j % 4], (v[j % 4] >> j / 4 * 2 & bytes_of(3)) | (flags & bytes_of(1)) << 2);
      }
    }
    const vf scale = floats_of_halves(halves);
    vi packed[4];
    turn(rows, 92, packed);  // the scales begin at 96; the sixteen bytes from there leave the block
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const vi low = i < 2 ? low_halves(packed[1 + i]) : high_halves(packed[i - 1]);
      const vi steps = low | (packed[3] >> 2 * i & bytes_of(3)) << 4;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) store(to.steps[4 * i + j], scale * floats((steps >> 8 * j & 255) - 32));
    }
  }
};

struct IntegerUnevenRuns {  // iq4_xs
  static constexpr int kRun = 32, kOffset = 128, kSums = 0;
  static constexpr bool kLeast = false;
  static constexpr int64_t kChunkBytes = 136;
  static void unpack(const char* const* rows, int64_t, IntegerPanel& to) {
#pragma GCC unroll 1
    for (int run = 0; run < 8; ++run) {
      vi v[4];
      turn(rows, 8 + 16 * run, v);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        put_int(to.indices[8 * run + j], look_up_bytes(uneven_indices(), low_halves(v[j])));
        put_int(to.indices[8 * run + 4 + j], look_up_bytes(uneven_indices(), high_halves(v[j])));
      }
    }
    vi head[4];
    turn(rows, 0, head);
    const vf scale = halves_of_lanes(head[0] & 0xffff);
#pragma GCC unroll 8
    for (int run = 0; run < 8; ++run)
      store(to.steps[run], scale * floats(((head[1] >> 4 * run & 15) | (head[0] >> (16 + 2 * run) & 3) << 4) - 32));
  }
};

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
