// Unpacks block-quantised integer weights for byte dot products. A lane is a row of the weight and contains four
// adjacent unsigned indices. The value is step * (index - offset), or step * index + least.
#pragma once

#include <harmonics/abi.h>

#include <cstring>

#include "integer_long_types.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Members of a type:
//   kRun: elements per step. kOffset: zero point. kLeast: whether there is a least number (minimum).
//   kSums: number of pairwise products whose sum fits 16 bits; 0: none with unsigned indices.
//   kTurned: whether chunks of x have the runs of each half in the order 0 2 4 6 1 3 5 7, the order of unpacking.
//   kChunkBytes: bytes of 256 elements, a chunk.
//   chunk(rows, sums): calls sums.add(run, indices, steps, leasts) for the runs of a chunk of kWidth rows, in order.
//   The rows are in the file's layout or packed.
//   pack(rows, to): packs a chunk into kPackedBytes.

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
struct IntegerUneven : PlainIndex {  // iq4_nl
  static constexpr int kOffset = 128, kSums = 0, kBlockBytes = 18, kIndices = 2;
  HM_INLINE static vi index(vi v) { return look_up_bytes(uneven_indices(), v); }
};
struct IntegerHalfSteps : PlainIndex {  // mxfp4
  static constexpr int kOffset = 12, kSums = 2, kBlockBytes = 17, kIndices = 1;
  static constexpr bool kPowers = true;
  HM_INLINE static vi index(vi v) { return look_up_bytes(_mm_add_epi8(half_steps(), _mm_set1_epi8(12)), v); }
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
