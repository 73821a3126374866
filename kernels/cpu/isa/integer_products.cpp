// Products of x, rounded to q8_0, with weights in blocks of whole numbers. Products of bytes are added exactly within a
// run of elements that share a step; a lane adds the runs of one result in order. So a result depends neither on the
// number of rows nor on the instructions that multiply bytes.
#include "../integer_products.hpp"

#include <harmonics/abi.h>

#include "eight_bits.hpp"
#include "integer_types.hpp"
#include "kernels.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- sums of four products of bytes in each lane. kSums products of pairs are added in 16 bits.

#if defined(__AVX512F__)
HM_INLINE vi pairs_of_bytes(vi unsigned_bytes, vi signed_bytes) {
  return (vi)_mm512_maddubs_epi16((__m512i)unsigned_bytes, (__m512i)signed_bytes);
}
HM_INLINE vi add_pairs(vi a, vi b) { return (vi)_mm512_add_epi16((__m512i)a, (__m512i)b); }
HM_INLINE vi lanes_of_pairs(vi pairs) { return (vi)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1)); }
HM_INLINE vi size_of_bytes(vi v) { return (vi)_mm512_abs_epi8((__m512i)v); }
HM_INLINE vi sign_bytes(vi v, vi sign) {
  return (vi)_mm512_mask_sub_epi8((__m512i)v, _mm512_movepi8_mask((__m512i)sign), _mm512_setzero_si512(), (__m512i)v);
}
#elif defined(__AVX2__)
HM_INLINE vi pairs_of_bytes(vi unsigned_bytes, vi signed_bytes) {
  return (vi)_mm256_maddubs_epi16((__m256i)unsigned_bytes, (__m256i)signed_bytes);
}
HM_INLINE vi add_pairs(vi a, vi b) { return (vi)_mm256_add_epi16((__m256i)a, (__m256i)b); }
HM_INLINE vi lanes_of_pairs(vi pairs) { return (vi)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }
HM_INLINE vi size_of_bytes(vi v) { return (vi)_mm256_abs_epi8((__m256i)v); }
HM_INLINE vi sign_bytes(vi v, vi sign) { return (vi)_mm256_sign_epi8((__m256i)v, (__m256i)sign); }
#else
HM_INLINE vi pairs_of_bytes(vi unsigned_bytes, vi signed_bytes) {
  return (vi)_mm_maddubs_epi16((__m128i)unsigned_bytes, (__m128i)signed_bytes);
}
HM_INLINE vi add_pairs(vi a, vi b) { return (vi)_mm_add_epi16((__m128i)a, (__m128i)b); }
HM_INLINE vi lanes_of_pairs(vi pairs) { return (vi)_mm_madd_epi16((__m128i)pairs, _mm_set1_epi16(1)); }
HM_INLINE vi size_of_bytes(vi v) { return (vi)_mm_abs_epi8((__m128i)v); }
HM_INLINE vi sign_bytes(vi v, vi sign) { return (vi)_mm_sign_epi8((__m128i)v, (__m128i)sign); }
#endif

#if defined(__AVX2__)
// The compiler's flags do not allow the instruction, which not every processor of the set has.
struct FourAtOnce {
  static constexpr int kSums = 1;
  static constexpr bool kSigned = false, kLanes = true;
  HM_INLINE static vi prepared(vi w) { return w; }
  HM_INLINE static vi add(vi sum, vi w, vi, vi x) {
#if defined(__AVX512F__)
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
#endif
    return sum;
  }
};
#endif

// Indices below 64; kMost products of pairs fit 16 bits.
template <int kMost>
struct PairsAtOnce {
  static constexpr int kSums = kMost;
  static constexpr bool kSigned = false, kLanes = false;
  HM_INLINE static vi prepared(vi w) { return w; }
  HM_INLINE static vi add(vi pairs, vi w, vi, vi x) { return add_pairs(pairs, pairs_of_bytes(w, x)); }
};

// Indices of all bytes, less 128.
struct SignedPairs {
  static constexpr int kSums = 1;
  static constexpr bool kSigned = true, kLanes = false;
  HM_INLINE static vi prepared(vi w) { return size_of_bytes(w); }
  HM_INLINE static vi add(vi pairs, vi w, vi size, vi x) {
    return add_pairs(pairs, pairs_of_bytes(size, sign_bytes(x, w)));
  }
};

// ---- rows of x times kTiles panels

template <typename Dot, int kRun, int kRows, int kTiles>
HM_INLINE void integer_tile(const IntegerPanel* panels, const IntegerChunk* x, float* sums, int64_t blocks,
                            bool has_least) {
  vf total[kRows][kTiles];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) total[r][t] = load(sums + (r * kTiles + t) * kWidth);
  for (int64_t run = 0; run < blocks * 32 / kRun; ++run) {
    vi sum[kRows][kTiles];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int t = 0; t < kTiles; ++t) sum[r][t] = Dot::kSigned ? vi{} : splat_int(x[r].starts[run]);
#pragma GCC unroll 8
    for (int k = 0; k < kRun / 4; k += Dot::kSums) {
      vi pairs[kRows][kTiles] = {};
#pragma GCC unroll 8
      for (int i = 0; i < Dot::kSums; ++i) {
        const int64_t at = run * (kRun / 4) + k + i;
        vi w[kTiles], size[kTiles];
#pragma GCC unroll 2
        for (int t = 0; t < kTiles; ++t) {
          w[t] = load_int(panels[t].indices[at]);
          if constexpr (Dot::kSigned) w[t] ^= bytes_of(128);
          size[t] = Dot::prepared(w[t]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int32_t four;
          std::memcpy(&four, x[r].steps + 4 * at, 4);
          const vi steps = splat_int(four);
#pragma GCC unroll 2
          for (int t = 0; t < kTiles; ++t) {
            vi& to = Dot::kLanes ? sum[r][t] : pairs[r][t];
            to = Dot::add(to, w[t], size[t], steps);
          }
        }
      }
      if constexpr (!Dot::kLanes) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
          for (int t = 0; t < kTiles; ++t) sum[r][t] += lanes_of_pairs(pairs[r][t]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const vf scale = splat(x[r].scales[run * kRun / 32]);
#pragma GCC unroll 2
      for (int t = 0; t < kTiles; ++t)
        total[r][t] = fma(floats(sum[r][t]), load(panels[t].steps[run]) * scale, total[r][t]);
    }
    if (has_least) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int t = 0; t < kTiles; ++t)
          total[r][t] = fma(load(panels[t].leasts[run]), splat(x[r].sums[run]), total[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int t = 0; t < kTiles; ++t) store(sums + (r * kTiles + t) * kWidth, total[r][t]);
}

// `rows` rows, kRows at a time, then fewer.
template <typename Dot, int kRun, int kTiles, int kRows>
void integer_rows(const IntegerPanel* panels, const IntegerChunk* x, float* sums, int64_t rows, int64_t blocks,
                  bool has_least) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows)
    integer_tile<Dot, kRun, kRows, kTiles>(panels, x + i, sums + i * kTiles * kWidth, blocks, has_least);
  if constexpr (kRows > 1)
    if (i < rows)
      integer_rows<Dot, kRun, kTiles, kRows / 2>(panels, x + i, sums + i * kTiles * kWidth, rows - i, blocks,
                                                 has_least);
}

// ---- types

using MultiplyPanels = void (*)(const IntegerPanel* panels, const IntegerChunk* x, float* sums, int64_t rows,
                                int64_t blocks, bool has_least);

constexpr int64_t kFewRows = 8;  // one panel at a time, so that fewer rows of the weight are read side by side
constexpr int kTilesOfMany = 2;

struct IntegerType {
  void (*unpack)(const char* const* rows, int64_t blocks, IntegerPanel& to);
  MultiplyPanels few, many;
  int64_t chunk_bytes;
  int run, offset;
  bool has_least;
};

template <typename Dot, typename W>
IntegerType integer_type_of() {
  constexpr int kFew = kWidth < 16 ? 4 : 8, kMany = kWidth < 16 ? 2 : 6;
  return {W::unpack,
          integer_rows<Dot, W::kRun, 1, kFew>,
          integer_rows<Dot, W::kRun, kTilesOfMany, kMany>,
          W::kChunkBytes,
          W::kRun,
          W::kOffset,
          W::kLeast};
}

template <typename W>
IntegerType integer_type_of(bool vnni) {
#if defined(__AVX2__)
  if (vnni) return integer_type_of<FourAtOnce, W>();
#else
  (void)vnni;
#endif
  if constexpr (W::kSums == 0)
    return integer_type_of<SignedPairs, W>();
  else
    return integer_type_of<PairsAtOnce<W::kSums>, W>();
}

IntegerType integer_type(uint32_t dtype, bool vnni) {
  switch (dtype) {
    case HX_Q8_0:
      return integer_type_of<IntegerEight>(vnni);
    case HX_Q4_0:
      return integer_type_of<IntegerShort<IntegerFour>>(vnni);
    case HX_Q4_1:
      return integer_type_of<IntegerShort<IntegerFourAndLeast>>(vnni);
    case HX_Q5_0:
      return integer_type_of<IntegerShort<IntegerFive>>(vnni);
    case HX_Q5_1:
      return integer_type_of<IntegerShort<IntegerFiveAndLeast>>(vnni);
    case HX_IQ4_NL:
      return integer_type_of<IntegerShort<IntegerUneven>>(vnni);
    case HX_MXFP4:
      return integer_type_of<IntegerShort<IntegerHalfSteps>>(vnni);
    case HX_Q2_K:
      return integer_type_of<IntegerTwo>(vnni);
    case HX_Q3_K:
      return integer_type_of<IntegerThree>(vnni);
    case HX_Q4_K:
      return integer_type_of<IntegerQuarters>(vnni);
    case HX_Q5_K:
      return integer_type_of<IntegerFiveAndMinima>(vnni);
    case HX_Q6_K:
      return integer_type_of<IntegerSix>(vnni);
    default:
      return integer_type_of<IntegerUnevenRuns>(vnni);
  }
}

// ---- phases

int64_t blocks_of_chunk(int64_t depth, int64_t chunk) {
  const int64_t left = depth - chunk * kIntegerDepth;
  return (left < kIntegerDepth ? left : kIntegerDepth) / 32;
}

void quantise_chunk(const float* x, int64_t blocks, const IntegerType& type, IntegerChunk& to) {
  char bytes[8 * kEightBytes];
  narrow_q8_0(x, bytes, 32 * blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    to.scales[b] = float_of_half(bytes + b * kEightBytes);
    std::memcpy(to.steps + 32 * b, bytes + b * kEightBytes + 2, 32);
  }
  for (int64_t run = 0; run < 32 * blocks / type.run; ++run) {
    const int8_t* steps = to.steps + run * type.run;
    int32_t sum = 0;
    for (int i = 0; i < type.run; ++i) sum += steps[i];
    to.starts[run] = -type.offset * sum;
    to.sums[run] = to.scales[run * type.run / 32] * static_cast<float>(sum);
  }
}

// Rows [row, row_end) of a times rows [column, column_end) of b.
void multiply_chunks(const IntegerContext& c, const IntegerType& type, const char* w, const IntegerChunk* x, float* y,
                     Range rows, Range columns) {
  const Product& p = c.product;
  const int64_t chunks = (p.k + kIntegerDepth - 1) / kIntegerDepth;
  IntegerPanel panels[kTilesOfMany];
  alignas(64) float sums[kIntegerRows * kTilesOfMany * kWidth];
  for (int64_t i = rows.begin; i < rows.end; i += kIntegerRows) {
    const int64_t m = rows.end - i < kIntegerRows ? rows.end - i : kIntegerRows;
    const int tiles = m > kFewRows ? kTilesOfMany : 1;
    const int64_t width = tiles * kWidth;
    for (int64_t j = columns.begin; j < columns.end; j += width) {
      const char *at[kTilesOfMany * kWidth], *next[kTilesOfMany * kWidth];
      for (int64_t k = 0; k < width; ++k) {  // rows behind the last are the last
        at[k] = w + (j + k < p.n ? j + k : p.n - 1) * c.row_bytes;
        next[k] = w + (j + width + k < p.n ? j + width + k : p.n - 1) * c.row_bytes;
      }
      std::memset(sums, 0, static_cast<size_t>(m * width) * sizeof(float));
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t blocks = blocks_of_chunk(p.k, chunk);
        for (int64_t k = 0; k < width; ++k) {
          // what is read next: a row is too short for the processor to notice its stream in time
          const char* soon = chunk + 1 < chunks ? at[k] + type.chunk_bytes : next[k];
          for (int64_t byte = 0; byte < type.chunk_bytes; byte += 64) _mm_prefetch(soon + byte, _MM_HINT_T0);
        }
        for (int t = 0; t < tiles; ++t) type.unpack(at + t * kWidth, blocks, panels[t]);
        (tiles > 1 ? type.many : type.few)(panels, x + chunk * p.m + i, sums, m, blocks, type.has_least);
        for (int64_t k = 0; k < width; ++k) at[k] += type.chunk_bytes;
      }
      for (int64_t r = 0; r < m; ++r)
        for (int t = 0; t < tiles; ++t) {
          const int64_t first = j + t * kWidth;
          if (first < columns.end)
            store_some(y + (i + r) * p.n + first, load(sums + r * width + t * kWidth), lanes_at(first, columns.end));
        }
    }
  }
}

}  // namespace

void integer_linear(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const IntegerContext*>(context);
  const Product& p = c.product;
  const IntegerType type = integer_type(c.dtype, c.vnni);
  auto* chunks = static_cast<IntegerChunk*>(buffers[p.c + 1]);
  if (phase == 0) {
    const float* x = static_cast<const float*>(buffers[p.a]);
    const int64_t all = (p.k + kIntegerDepth - 1) / kIntegerDepth;
    const Range items = share(all * p.m, c.quantise_parts, part);
    for (int64_t i = items.begin; i < items.end; ++i) {
      const int64_t chunk = i / p.m, row = i % p.m;
      quantise_chunk(x + row * p.k + chunk * kIntegerDepth, blocks_of_chunk(p.k, chunk), type, chunks[i]);
    }
    return;
  }
  const uint32_t row_part = part / c.column_parts, column_part = part % c.column_parts;
  const Range rows = {slice_begin(p.m, kIntegerRows, c.row_parts, row_part),
                      slice_begin(p.m, kIntegerRows, c.row_parts, row_part + 1)},
              columns = {slice_begin(p.n, kIntegerColumnGranule, c.column_parts, column_part),
                         slice_begin(p.n, kIntegerColumnGranule, c.column_parts, column_part + 1)};
  multiply_chunks(c, type, static_cast<const char*>(buffers[p.b]), chunks, static_cast<float*>(buffers[p.c]), rows,
                  columns);
  end_product(p, buffers, rows.begin, rows.end, columns.begin, columns.end);
}

}  // namespace harmonics::cpu::HM_ISA
