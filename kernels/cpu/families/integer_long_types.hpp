// Blocks of 256 whole numbers, unpacked for products of bytes (integer_types.hpp).
#pragma once

#include <cstring>

#include "integer_lanes.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

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

// q4_k. Sums of bytes (kBytes) take high halves in place: 16 times the index and a sixteenth of the step.
struct IntegerQuarters : IntegerLong<32, 144> {
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
      for (int j = 0; j < 8; ++j) to[j] = Sums::kBytes ? v[j] & bytes_of(240) : high_halves(v[j]);
      const vf step = pairs.step(2 * i + 1);
      sums.add(2 * i + 1, to, Sums::kBytes ? step * splat(0.0625f) : step, pairs.least(2 * i + 1));
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

  // Packed: three lanes per run, in the order of `place`; then the steps of the runs and the scales. The low six bits
  // of the lanes are the indices of the first twelve elements, their high two bits together those of the last four. An
  // index of the first twelve then takes one operation instead of four or five.
 private:
  static constexpr int64_t kStepsAt = 48 * 4 * kWidth, kScalesAt = kStepsAt + 16 * kWidth;
  // Returns four adjacent indices of a run, from element 4 * lane.
  static uint32_t four_of(const char* block, int run, int64_t lane) {
    const int half = run / 8, quarter = run % 8 / 2;
    const int64_t at = 16 * (run % 2) + 4 * lane;
    uint32_t low, high;
    std::memcpy(&low, block + 64 * half + 32 * (quarter % 2) + at, 4);
    std::memcpy(&high, block + 128 + 32 * half + at, 4);
    return (low >> (quarter < 2 ? 0 : 4) & 0x0f0f0f0f) | (high >> 2 * quarter & 0x03030303) << 4;
  }

 public:
  static constexpr int64_t kPackedBytes = kScalesAt + 4 * kWidth;  // whole lanes
  static void pack(const char* const* rows, char* to) {
    for (int64_t i = 0; i < kWidth; ++i) {
      for (int run = 0; run < 16; ++run) {
        const int at = place_of(run);
        const uint32_t last = four_of(rows[i], run, 3);
        for (int64_t lane = 0; lane < 3; ++lane) {
          const uint32_t four = four_of(rows[i], run, lane) | (last >> 2 * lane & 0x03030303) << 6;
          std::memcpy(to + ((3 * at + lane) * kWidth + i) * 4, &four, 4);
        }
        to[kStepsAt + at * kWidth + i] = rows[i][192 + run];
      }
      std::memcpy(to + kScalesAt + 2 * i, rows[i] + 208, 2);
    }
  }
  template <bool kStreamed, typename Sums>
  HM_INLINE static void chunk(PackedLanes<kStreamed> rows, Sums& sums) {
    const vf scale = floats_of_halves(reinterpret_cast<const uint16_t*>(rows.at + kScalesAt));
#pragma GCC unroll 4
    for (int run = 0; run < 16; ++run) {
      const vi a = rows.lane(3 * run), b = rows.lane(3 * run + 1), c = rows.lane(3 * run + 2);
      const vi six = bytes_of(63);
      const vi to[4] = {a & six, b & six, c & six,
                        (a >> 6 & bytes_of(3)) | (b >> 4 & bytes_of(12)) | (c >> 2 & bytes_of(48))};
      rows.fetch(kStepsAt + kWidth * run);
      sums.add(run, to, scale * floats(lanes_of_signed_bytes(rows.at + kStepsAt + kWidth * run)), vf{});
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

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
