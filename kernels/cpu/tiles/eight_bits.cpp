#include "../eight_bit_tiles.hpp"

#include <cstring>

#include <immintrin.h>

namespace harmonics::cpu::tiles {
namespace {

#define HM_INLINE [[gnu::always_inline, maybe_unused]] inline

constexpr int64_t kBlock = 32, kBlockBytes = 34;  // q8_0 block: f16 scale, then signed bytes
constexpr int64_t kKeys = 16;                     // keys per tile
constexpr int64_t kGroup = 64;                    // keys whose weights share a scale
constexpr int64_t kBlocks = 4;                    // blocks multiplied before their sums are read
constexpr int64_t kBlockOfKeys = 128;
constexpr float kMostStep = 16319, kMostWeight = 32760;  // 127 * 128 + 63; below 2^15

struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
// Tile registers for scores: sums (0 to 3), keys (4, 5), queries (6, 7); for values: sums (0 to 3), weights (4, 5),
// values (6, 7).
const TileConfiguration kScoreTiles{.row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
                                    .rows = {16, 16, 16, 16, 16, 16, 8, 8}},
    kValueTiles{.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {8, 8, 8, 8, 8, 8, 16, 16}};

// Compiler barrier: the tile intrinsics of g++ 12 are not declared to access memory.
HM_INLINE void settle_memory() { asm volatile("" ::: "memory"); }

void end() { _tile_release(); }

// Calls f with n as a template argument.
template <typename F>
HM_INLINE void with_blocks(int64_t n, F f) {
  switch (n) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    default:
      return f.template operator()<4>();
  }
}

HM_INLINE __m512 splat(float x) { return _mm512_set1_ps(x); }
HM_INLINE __m512i size_bits(__m512 v) {
  return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}
// Returns the largest of the magnitudes with these bits; NaN is the largest.
HM_INLINE float largest(__m512i sizes) {
  const int32_t bits = _mm512_reduce_max_epi32(sizes);
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
HM_INLINE bool is_finite(float x) { return x - x == 0; }

HM_INLINE void fetch(const RowsAhead& ahead, int64_t from, int64_t to) {
  if (to > ahead.count) to = ahead.count;
  for (int64_t i = from; i < to; ++i) {
    const char* const row = ahead.rows[i];
    for (int64_t b = 0; b < ahead.bytes; b += 64) _mm_prefetch(row + b, _MM_HINT_T0);
    _mm_prefetch(row + ahead.bytes - 1, _MM_HINT_T0);
  }
}

// ---- packed queries: sets of 8, blocks of 32 elements. A block is a tile. Its row k has the elements 4 k to 4 k + 3
// of eight queries: their high parts, then their low parts.

void pack_queries(const float* q, int64_t rows, int64_t width, int8_t* packed, float* units) {
  const int64_t sets = query_sets(rows), set_bytes = 2 * kTileQueries * width;
  if (rows % kTileQueries) std::memset(packed + (sets - 1) * set_bytes, 0, static_cast<size_t>(set_bytes));
  for (int64_t i = rows; i < sets * kTileQueries; ++i) units[i] = 0;
  for (int64_t i = 0; i < rows; ++i, q += width) {
    __m512i sizes = _mm512_setzero_si512();
    for (int64_t d = 0; d < width; d += 16) sizes = _mm512_max_epi32(sizes, size_bits(_mm512_loadu_ps(q + d)));
    const float most = largest(sizes);
    units[i] = is_finite(most) ? most / kMostStep : __builtin_nanf("");
    const __m512 inverse = splat(most > 0 ? kMostStep / most : 0.0f);
    int8_t* to = packed + i / kTileQueries * set_bytes + i % kTileQueries * 4;
    for (int64_t d = 0; d < width; d += 16) {
      const __m512 scaled = _mm512_min_ps(
          splat(kMostStep), _mm512_max_ps(splat(-kMostStep), _mm512_mul_ps(_mm512_loadu_ps(q + d), inverse)));
      const __m512i x = _mm512_cvtps_epi32(scaled);
      const __m512i low = _mm512_sub_epi32(
          _mm512_and_si512(_mm512_add_epi32(x, _mm512_set1_epi32(64)), _mm512_set1_epi32(127)), _mm512_set1_epi32(64));
      int32_t high_fours[4], low_fours[4];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(high_fours),
                       _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_sub_epi32(x, low), 7)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(low_fours), _mm512_cvtepi32_epi8(low));
      for (int k = 0; k < 4; ++k, to += 64) {
        std::memcpy(to, high_fours + k, 4);
        std::memcpy(to + 32, low_fours + k, 4);
      }
    }
  }
}

// ---- scores

// Sixteen keys with equally spaced rows, and their scales by block.
struct SomeKeys {
  const char* rows;
  int64_t stride;
  alignas(64) float scales[kMostTiledWidth / kBlock][kKeys];
};

// Copies the rows if they are not equally spaced.
HM_INLINE void take_keys(const char* const* keys, int64_t n, int64_t width, char* copies, SomeKeys& to) {
  const int64_t blocks = width / kBlock, bytes = blocks * kBlockBytes;
  to.rows = keys[0];
  to.stride = n > 1 ? keys[1] - keys[0] : 0;
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0),
                first = _mm512_add_epi64(_mm512_set1_epi64(reinterpret_cast<int64_t>(to.rows)),
                                         _mm512_mullo_epi64(lanes, _mm512_set1_epi64(to.stride))),
                second = _mm512_add_epi64(first, _mm512_set1_epi64(8 * to.stride));
  const bool regular = n == kKeys && to.stride < (1 << 26) && to.stride > -(1 << 26) &&
                       _mm512_cmpneq_epi64_mask(first, _mm512_loadu_si512(keys)) == 0 &&
                       _mm512_cmpneq_epi64_mask(second, _mm512_loadu_si512(keys + 8)) == 0;
  if (!regular) {
    to.rows = copies;
    to.stride = bytes;
    for (int64_t i = 0; i < kKeys; ++i)
      std::memcpy(copies + i * bytes, keys[i < n ? i : n - 1], static_cast<size_t>(bytes));
  }
  const __m512i at = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                        _mm512_set1_epi32(static_cast<int32_t>(to.stride)));
  for (int64_t b = 0; b < blocks; ++b) {
    const __m512i four = _mm512_i32gather_epi32(at, to.rows + b * kBlockBytes, 1);
    _mm512_store_ps(to.scales[b], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(four)));
  }
}

// Transposes: row r of the result has lane r of sums[0] to sums[15].
HM_INLINE void exchange(const __m256* sums, __m512* rows) {
  __m512 z[8], t[8], u[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int first = i < 4 ? i : i + 4;
    z[i] = _mm512_insertf32x8(_mm512_castps256_ps512(sums[first]), sums[first + 4], 1);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_ps(z[i], z[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(z[i], z[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    rows[c] = _mm512_shuffle_f32x4(u[c], u[c + 4], 0x88);
    rows[c + 4] = _mm512_shuffle_f32x4(u[c], u[c + 4], 0xdd);
  }
}

struct ExactScores {
  alignas(64) int32_t sums[kBlocks][kKeys][16];
};

// Computes the exact integer products of sixteen keys and a set of queries, for n blocks.
template <int n>
HM_INLINE void multiply_keys(const char* keys, int64_t stride, const int8_t* queries, ExactScores& to) {
  settle_memory();
  const auto block = [&](int b) { return keys + b * kBlockBytes + 2; };
  _tile_zero(0);
  _tile_loadd(4, block(0), stride);
  _tile_loadd(6, queries, 64);
  _tile_dpbssd(0, 4, 6);
  if constexpr (n > 1) {
    _tile_zero(1);
    _tile_loadd(5, block(1), stride);
    _tile_loadd(7, queries + 16 * kBlock, 64);
    _tile_dpbssd(1, 5, 7);
  }
  if constexpr (n > 2) {
    _tile_zero(2);
    _tile_loadd(4, block(2), stride);
    _tile_loadd(6, queries + 32 * kBlock, 64);
    _tile_dpbssd(2, 4, 6);
  }
  if constexpr (n > 3) {
    _tile_zero(3);
    _tile_loadd(5, block(3), stride);
    _tile_loadd(7, queries + 48 * kBlock, 64);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, to.sums[0], 64);
  if constexpr (n > 1) _tile_stored(1, to.sums[1], 64);
  if constexpr (n > 2) _tile_stored(2, to.sums[2], 64);
  if constexpr (n > 3) _tile_stored(3, to.sums[3], 64);
  settle_memory();
}

// Adds the scaled sums of the blocks in f32, in order.
template <int n>
HM_INLINE void add_blocks(const ExactScores& exact, const float (*scales)[kKeys], bool add, float (*totals)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < kKeys; ++i) {
    __m512 sum = add ? _mm512_load_ps(totals[i]) : _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int b = 0; b < n; ++b)
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(exact.sums[b][i])), splat(scales[b][i]), sum);
    _mm512_store_ps(totals[i], sum);
  }
}

// A step: some blocks of sixteen keys and a set of queries.
struct ScoreStep {
  const float (*scales)[kKeys];
  int64_t row, key;  // the first of each
  __mmask16 keys;
  bool add, last;  // add: not the first blocks of the keys; last: the last ones
};

HM_INLINE void put_scores(const TiledScores& x, const ScoreStep& step, float (*totals)[16]) {
  __m256 sums[kKeys];
  __m512 rows[kTileQueries];
#pragma GCC unroll 16
  for (int i = 0; i < kKeys; ++i)
    sums[i] = _mm256_fmadd_ps(_mm256_load_ps(totals[i]), _mm256_set1_ps(128), _mm256_load_ps(totals[i] + 8));
  exchange(sums, rows);
#pragma GCC unroll 8
  for (int r = 0; r < kTileQueries; ++r)
    if (step.row + r < x.rows)
      _mm512_mask_storeu_ps(x.scores + (step.row + r) * x.row_stride + step.key, step.keys,
                            _mm512_mul_ps(rows[r], splat(x.units[step.row + r])));
}

// Software pipeline: tiles multiply for one step while the sums of the previous step are read.
void scores(const TiledScores& x) {
  alignas(64) char copies[2][kKeys * (kMostTiledWidth / kBlock * kBlockBytes)];
  alignas(64) float totals[kKeys][16];
  SomeKeys keys[2];
  ExactScores exact[2];
  ScoreStep waiting{};
  const int64_t set_bytes = 2 * kTileQueries * x.width, all = x.width / kBlock;
  int64_t steps = 0, blocks = 0;
  const auto finish = [&]() __attribute__((always_inline)) {
    with_blocks(
        blocks, [&]<int n>() __attribute__((always_inline)) {
          add_blocks<n>(exact[(steps - 1) % 2], waiting.scales, waiting.add, totals);
        });
    if (waiting.last) put_scores(x, waiting, totals);
  };
  _tile_loadconfig(&kScoreTiles);
  for (int64_t j = 0; j < x.n; j += kKeys) {
    const int64_t n = x.n - j < kKeys ? x.n - j : kKeys;
    SomeKeys& here = keys[j / kKeys % 2];
    take_keys(x.keys + j, n, x.width, copies[j / kKeys % 2], here);
    fetch(x.ahead, j, j + kKeys);
    for (int64_t i = 0; i < x.rows; i += kTileQueries)
      for (int64_t b = 0; b < all; b += kBlocks) {
        const int8_t* const queries = x.queries + i / kTileQueries * set_bytes + b * kBlock * 16;
        const int64_t some = all - b < kBlocks ? all - b : kBlocks;
        with_blocks(
            some, [&]<int count>() __attribute__((always_inline)) {
              multiply_keys<count>(here.rows + b * kBlockBytes, here.stride, queries, exact[steps % 2]);
            });
        if (steps > 0) finish();
        ++steps;
        blocks = some;
        waiting = {here.scales + b, i, j, static_cast<__mmask16>((1u << n) - 1), b > 0, b + kBlocks >= all};
      }
  }
  if (steps > 0) finish();
}

// ---- values

// The values of 64 keys: bytes in tiles of 16 columns, whose row k interleaves keys k, k + 32, k + 16 and k + 48; and
// scales by block.
struct SomeValues {
  alignas(64) int8_t tiles[2 * kBlocks][16][64];
  alignas(64) float scales[kBlocks][kGroup], steps[kBlocks][kGroup];  // steps: kMostWeight * scale / largest scale
  float most[kBlocks];
};

HM_INLINE void scale_to(const __m512* scales, float most, __m512* steps) {
  const __m512 inverse = splat(most > 0 ? kMostWeight / most : 0.0f);
  for (int v = 0; v < 4; ++v) steps[v] = _mm512_mul_ps(scales[v], inverse);
}
HM_INLINE float largest_of(const __m512* v) {
  return largest(_mm512_max_epi32(_mm512_max_epi32(size_bits(v[0]), size_bits(v[1])),
                                  _mm512_max_epi32(size_bits(v[2]), size_bits(v[3]))));
}

// `rows`: the row of each key; any row for absent keys. `present`: mask of the keys that exist.
template <int blocks>
HM_INLINE void take_values(const char* const* rows, uint64_t present, int64_t first, SomeValues& to) {
  const __m512i order =
      _mm512_set_epi8(63, 47, 31, 15, 62, 46, 30, 14, 61, 45, 29, 13, 60, 44, 28, 12, 59, 43, 27, 11, 58, 42, 26, 10,
                      57, 41, 25, 9, 56, 40, 24, 8, 55, 39, 23, 7, 54, 38, 22, 6, 53, 37, 21, 5, 52, 36, 20, 4, 51, 35,
                      19, 3, 50, 34, 18, 2, 49, 33, 17, 1, 48, 32, 16, 0);
  const auto sixteen = [](const char* p) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  };
  uint16_t halves[blocks][kGroup];
  for (int64_t k = 0; k < kGroup; ++k) {
    const char* const row = rows[k] + first * kBlockBytes;
#pragma GCC unroll 4
    for (int b = 0; b < blocks; ++b) std::memcpy(&halves[b][k], row + b * kBlockBytes, 2);
  }
  for (int64_t k = 0; k < 16; ++k) {
    const int64_t at = first * kBlockBytes + 2;
    const char *const a = rows[k] + at, *const b = rows[k + 32] + at, *const c = rows[k + 16] + at,
                      *const d = rows[k + 48] + at;
#pragma GCC unroll 8
    for (int t = 0; t < 2 * blocks; ++t) {
      const int64_t skip = t / 2 * kBlockBytes + t % 2 * 16;
      __m512i four = _mm512_castsi128_si512(sixteen(a + skip));
      four = _mm512_inserti32x4(four, sixteen(b + skip), 1);
      four = _mm512_inserti32x4(four, sixteen(c + skip), 2);
      four = _mm512_inserti32x4(four, sixteen(d + skip), 3);
      _mm512_store_si512(to.tiles[t][k], _mm512_permutexvar_epi8(order, four));
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < blocks; ++b) {
    __m512 s[4], steps[4];
    for (int v = 0; v < 4; ++v) {
      const auto some = static_cast<__mmask16>(present >> 16 * v);
      s[v] = _mm512_maskz_mov_ps(
          some, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves[b] + 16 * v))));
      _mm512_store_ps(to.scales[b] + 16 * v, s[v]);
    }
    to.most[b] = largest_of(s);
    scale_to(s, to.most[b], steps);
    for (int v = 0; v < 4; ++v) _mm512_store_ps(to.steps[b] + 16 * v, steps[v]);
  }
}

HM_INLINE uint64_t bits_between(int64_t from, int64_t to) {
  return from >= to ? 0 : (to - from == 64 ? ~uint64_t{0} : ((uint64_t{1} << (to - from)) - 1) << from);
}

// Weights of a set of queries for a group of keys, divided by the largest weight of each query.
struct SetWeights {
  alignas(64) float over_most[kTileQueries][kGroup];
  float most[kTileQueries];
  uint64_t seen[kTileQueries];  // mask of visible keys; 0: all weights are 0
};

HM_INLINE void take_weights(const float* weights, uint64_t seen, int64_t row, SetWeights& to) {
  __m512 w[4];
  for (int v = 0; v < 4; ++v) w[v] = _mm512_loadu_ps(weights + 16 * v);
  const float most = largest_of(w);
  to.most[row] = most;
  to.seen[row] = most == 0 ? 0 : seen;
  const __m512 inverse = splat(1 / most);
  for (int v = 0; v < 4; ++v) _mm512_store_ps(to.over_most[row] + 16 * v, _mm512_mul_ps(w[v], inverse));
}

// 16-bit integer weights for a block of values: high bytes are signed, low bytes unsigned.
struct WholeWeights {
  alignas(64) int8_t high[kTileQueries][64];
  alignas(64) uint8_t low[kTileQueries][64];
  float units[kTileQueries];
};

HM_INLINE void round_weights(const SetWeights& from, const SomeValues& values, int64_t b, int64_t row,
                             WholeWeights& to) {
  const uint64_t seen = from.seen[row];
  if (!seen) {
    _mm512_store_si512(to.high[row], _mm512_setzero_si512());
    _mm512_store_si512(to.low[row], _mm512_setzero_si512());
    return;
  }
  __m512 steps[4];
  float scale = values.most[b];
  if (seen == ~uint64_t{0}) {
    for (int v = 0; v < 4; ++v) steps[v] = _mm512_load_ps(values.steps[b] + 16 * v);
  } else {  // ignores the scales of other keys
    for (int v = 0; v < 4; ++v)
      steps[v] = _mm512_maskz_load_ps(static_cast<__mmask16>(seen >> 16 * v), values.scales[b] + 16 * v);
    scale = largest_of(steps);
    scale_to(steps, scale, steps);
  }
  to.units[row] = is_finite(scale) ? scale * from.most[row] * (1 / kMostWeight) : __builtin_nanf("");
  __m512i x[4];
  for (int v = 0; v < 4; ++v)
    x[v] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(from.over_most[row] + 16 * v), steps[v]));
  const __m512i even = _mm512_set1_epi16(0x00ff),
                near = _mm512_mask_blend_epi16(0xaaaaaaaa, x[0], _mm512_slli_epi32(x[1], 16)),
                far = _mm512_mask_blend_epi16(0xaaaaaaaa, x[2], _mm512_slli_epi32(x[3], 16));
  _mm512_store_si512(to.low[row],  // even ? near : far << 8
                     _mm512_ternarylogic_epi32(even, near, _mm512_slli_epi16(far, 8), 0xca));
  _mm512_store_si512(to.high[row], _mm512_ternarylogic_epi32(even, _mm512_srli_epi16(near, 8), far, 0xca));
}

// Exact integer products of the weights of a set and a block of a group's values, for high and low bytes.
struct ExactValues {
  alignas(64) int32_t high[2][kTileQueries][16], low[2][kTileQueries][16];
};

HM_INLINE void multiply_values(const WholeWeights& weights, const SomeValues& values, int64_t b, ExactValues& to) {
  settle_memory();
  _tile_loadd(4, weights.high, 64);
  _tile_loadd(6, values.tiles[2 * b], 64);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 6);
  _tile_loadd(7, values.tiles[2 * b + 1], 64);
  _tile_zero(1);
  _tile_dpbssd(1, 4, 7);
  _tile_loadd(5, weights.low, 64);
  _tile_zero(2);
  _tile_dpbusd(2, 5, 6);
  _tile_zero(3);
  _tile_dpbusd(3, 5, 7);
  _tile_stored(0, to.high[0], 64);
  _tile_stored(1, to.high[1], 64);
  _tile_stored(2, to.low[0], 64);
  _tile_stored(3, to.low[1], 64);
  settle_memory();
}

// Adds the products of a set of queries and a group of values, for `blocks` blocks from `first`. Software pipeline:
// tiles multiply for one block while the weights of the next block are quantised and the sums of the previous one are
// read. `sets`: mask of the rows whose sums begin with this group.
HM_INLINE void add_set(const TiledValues& x, const SetWeights& weights, const SomeValues& values, int64_t row,
                       int64_t first, int64_t blocks, uint32_t sets) {
  WholeWeights whole[3];
  ExactValues exact[2];
  const auto add = [&](int64_t b) __attribute__((always_inline)) {
    const ExactValues& sums = exact[b % 2];
    float* out = x.out + row * x.width + (first + b) * kBlock;
    for (int64_t r = 0; r < kTileQueries && row + r < x.rows; ++r, out += x.width) {
      const bool begins = sets >> r & 1;
      if (!weights.seen[r] && !begins) continue;
      const __m512 unit = splat(weights.seen[r] ? whole[b % 3].units[r] : 0.0f);
#pragma GCC unroll 2
      for (int t = 0; t < 2; ++t) {
        const __m512i both = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(sums.high[t][r]), 8),
                                              _mm512_load_si512(sums.low[t][r]));
        const __m512 before = begins ? _mm512_setzero_ps() : _mm512_loadu_ps(out + 16 * t);
        _mm512_storeu_ps(out + 16 * t, _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), unit, before));
      }
    }
  };
  const auto round = [&](int64_t b) __attribute__((always_inline)) {
    for (int64_t r = 0; r < kTileQueries; ++r) round_weights(weights, values, b, r, whole[b % 3]);
  };
  round(0);
  for (int64_t b = 0; b < blocks; ++b) {
    if (b + 1 < blocks) round(b + 1);  // early, so that tile loads do not wait for these stores
    multiply_values(whole[b % 3], values, b, exact[b % 2]);
    if (b > 0) add(b - 1);
  }
  add(blocks - 1);
}

void values(const TiledValues& x) {
  SomeValues values;
  SetWeights weights;
  const char* rows[kGroup];
  _tile_loadconfig(&kValueTiles);
  for (int64_t group = x.begin / kGroup * kGroup; group < x.end; group += kGroup) {
    const int64_t from = x.begin > group ? x.begin - group : 0, to = x.end - group < kGroup ? x.end - group : kGroup;
    for (int64_t k = 0; k < kGroup; ++k) rows[k] = x.values[(k < from ? from : k < to ? k : to - 1) + group - x.begin];
    const bool first_of_rows = group <= x.begin;
    fetch(x.ahead, first_of_rows ? 0 : kGroup, first_of_rows && group + kGroup < x.end ? kGroup : kBlockOfKeys);
    for (int64_t first = 0; first < x.width / kBlock; first += kBlocks) {
      const int64_t blocks = x.width / kBlock - first < kBlocks ? x.width / kBlock - first : kBlocks;
      with_blocks(
          blocks, [&]<int n>()
                      __attribute__((always_inline)) { take_values<n>(rows, bits_between(from, to), first, values); });
      for (int64_t i = 0; i < x.rows; i += kTileQueries) {
        bool any = false;
        uint32_t sets = 0;
        for (int64_t r = 0; r < kTileQueries; ++r) {
          weights.seen[r] = 0;
          if (i + r >= x.rows) continue;
          const TiledQuery& query = x.seen[(i + r) / x.group];
          const int64_t begin = query.from > group ? query.from - group : 0,
                        end = query.to - group < kGroup ? query.to - group : kGroup;
          if (begin < end)
            take_weights(x.weights + (i + r) * kBlockOfKeys + group, bits_between(begin, end), r, weights);
          const bool begins =
              query.fresh && query.from < query.to && query.from >= group && query.from < group + kGroup;
          sets |= static_cast<uint32_t>(begins) << r;
          any = any || weights.seen[r] || begins;
        }
        if (any) add_set(x, weights, values, i, first, blocks, sets);
      }
    }
  }
}

}  // namespace

const EightBitTiles eight_bits{end, pack_queries, scores, values};

}  // namespace harmonics::cpu::tiles
