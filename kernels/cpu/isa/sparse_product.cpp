#include "../sparse_product.hpp"

#include "kernels.hpp"
#include "simd.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

template <int kCount>
struct Count {
  static constexpr int value = kCount;
};

constexpr int kPanel = HM_VECTOR_BYTES == 16 ? 4 : 8;  // vectors of C in registers

// Bit i: lane i is not zero (NaN is not).
HM_INLINE uint32_t nonzero_mask(vf v) {
#if defined(__AVX512F__)
  uint32_t mask = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
#if defined(__SANITIZE_ADDRESS__)
  // g++ 12 with both sanitizers leaves bits above the sixteen, and takes them for zeros.
  asm("" : "+r"(mask));
  mask &= 0xffff;
#endif
  return mask;
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_UQ)));
#else
  return static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpneq_ps(v, _mm_setzero_ps())));
#endif
}

struct Lists {
  int32_t* verdicts;
  SparseSegment* segments;
  float* values;
  int32_t* offsets;
};
HM_INLINE Lists lists_of(const SparseContext& c, void* const* buffers, uint32_t build_part) {
  char* base = static_cast<char*>(buffers[c.workspace]);
  char* own = base + kVerdictBytes + segment_bytes(c) + build_part * c.list_bytes;
  return {reinterpret_cast<int32_t*>(base), reinterpret_cast<SparseSegment*>(base + kVerdictBytes),
          reinterpret_cast<float*>(own), reinterpret_cast<int32_t*>(own + c.list_bytes / 2)};
}
HM_INLINE Range build_range(const SparseContext& c, uint32_t part) { return share(c.product.m, c.build_parts, part); }

// A's elements: numbers, or bytes that a scale makes numbers.
struct Numbers {
  using Element = float;
  HM_INLINE vf some(const float* p, int64_t n) const { return load_some(p, n); }
  HM_INLINE float one(float x) const { return x; }
};
struct Bytes {
  using Element = uint8_t;
  float scale;
  bool packs;  // SparseContext::packs_bytes
  HM_INLINE vf some(const uint8_t* p, int64_t n) const {
    uint8_t few[kWidth] = {};
    if (n < kWidth) __builtin_memcpy(few, p, static_cast<size_t>(n)), p = few;
#if defined(__AVX512F__)
    const vf v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
    const vf v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
    int32_t four;
    __builtin_memcpy(&four, p, sizeof four);
    const vf v = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four)));
#endif
    return v * scale;
  }
  HM_INLINE float one(uint8_t x) const { return static_cast<float>(x) * scale; }
};

HM_INLINE int64_t count_run(const float* p, int64_t n) {
  int64_t count = 0, i = 0;
  for (; i + kWidth <= n; i += kWidth) count += __builtin_popcount(nonzero_mask(load(p + i)));
  if (i < n) count += __builtin_popcount(nonzero_mask(load_part(p + i, n - i)));
  return count;
}
// Bit i: byte i of 16 is zero.
HM_INLINE uint32_t zero_bytes(const uint8_t* p) {
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_setzero_si128())));
}
HM_INLINE int64_t count_run(const uint8_t* p, int64_t n) {
  int64_t count = 0, i = 0;
#if defined(__AVX512BW__)
  for (; i + 64 <= n; i += 64) {
    const __m512i v = _mm512_loadu_si512(p + i);
    count += __builtin_popcountll(_mm512_test_epi8_mask(v, v));
  }
#endif
  for (; i + 16 <= n; i += 16) count += 16 - __builtin_popcount(zero_bytes(p + i));
  for (; i < n; ++i) count += p[i] != 0;
  return count;
}
// Runs of memory: rows of A, or the parts of its columns that belong to `rows`. Every `step`th of them.
template <typename T>
HM_INLINE int64_t count_nonzeros(const Product& p, const T* a, Range rows, int64_t step) {
  int64_t count = 0;
  if (p.a_column == 1)
    for (int64_t i = rows.begin; i < rows.end; i += step) count += count_run(a + i * p.a_row, p.k);
  else
    for (int64_t k = 0; k < p.k; k += step) count += count_run(a + k * p.a_column + rows.begin, rows.end - rows.begin);
  return count;
}

// A sample decides where it is clear: products with few zeros are not to pay for looking.
template <typename T>
HM_INLINE bool is_sparse(const Product& p, const T* a, Range rows) {
  constexpr int64_t kStep = 16;
  constexpr double kClear = 0.6;
  const int64_t own = rows.end - rows.begin, runs = p.a_column == 1 ? own : p.k, length = p.a_column == 1 ? p.k : own;
  if (runs >= 4 * kStep) {
    const double sampled = static_cast<double>((runs + kStep - 1) / kStep * length);
    if (static_cast<double>(count_nonzeros(p, a, rows, kStep)) > kClear * sampled) return false;
  }
  return static_cast<double>(count_nonzeros(p, a, rows, 1)) <= kSparse * static_cast<double>(own * p.k);
}

// Are the 32 elements from `p` on zeros? Numbers are not looked at twice.
HM_INLINE bool zeros(const float*) { return false; }
HM_INLINE bool zeros(const uint8_t* p) { return (zero_bytes(p) & zero_bytes(p + 16)) == 0xffff; }

// What of a run of A is not zero, at the end of the lists; offsets count from column `k`'s row of B.
template <typename Elements>
HM_INLINE int32_t list_lanes(const Elements& elements, const Lists& lists, int32_t n, const typename Elements::Element* from, int64_t k, int64_t columns,
                             int64_t b_row) {
  for (int64_t j = 0; j < columns;) {
    if (columns - j >= 32 && zeros(from + j)) {
      j += 32;
      continue;
    }
    for (uint32_t mask = nonzero_mask(elements.some(from + j, lanes_at(j, columns))); mask; mask &= mask - 1, ++n) {
      const int64_t lane = __builtin_ctz(mask);
      lists.values[n] = elements.one(from[j + lane]);
      lists.offsets[n] = static_cast<int32_t>((k + j + lane) * b_row);
    }
    j += kWidth;
  }
  return n;
}

#if defined(__AVX512F__)
// The same of bytes, 64 at a time: few of them are not zero, and only these become numbers.
[[gnu::target("avx512vbmi2"), gnu::noinline, maybe_unused]] int32_t list_packed(float scale, const Lists& lists, int32_t n, const uint8_t* from, int64_t k,
                                                                                int64_t columns, int64_t b_row) {
  alignas(64) static constexpr uint8_t kPlaces[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
                                                      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  const __m512i places = _mm512_load_si512(kPlaces), step = _mm512_set1_epi32(static_cast<int32_t>(b_row));
  for (int64_t j = 0; j < columns; j += 64) {
    const __mmask64 there = columns - j < 64 ? (__mmask64{1} << (columns - j)) - 1 : ~__mmask64{0};
    const __m512i bytes = _mm512_maskz_loadu_epi8(there, from + j);
    const __mmask64 mask = _mm512_test_epi8_mask(bytes, bytes);
    if (mask == 0) continue;
    alignas(64) uint8_t values[64], at[64];
    _mm512_store_si512(values, _mm512_maskz_compress_epi8(mask, bytes));
    _mm512_store_si512(at, _mm512_maskz_compress_epi8(mask, places));
    const auto count = static_cast<int32_t>(__builtin_popcountll(mask));
    const __m512i first = _mm512_set1_epi32(static_cast<int32_t>((k + j) * b_row));
    for (int32_t i = 0; i < count; i += 16) {  // whole vectors: the lists have room for one behind their last number
      const auto wide = [i](const uint8_t* b) __attribute__((always_inline)) {
        return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(b + i)));
      };
      _mm512_storeu_ps(lists.values + n + i, _mm512_mul_ps(_mm512_cvtepi32_ps(wide(values)), _mm512_set1_ps(scale)));
      _mm512_storeu_si512(lists.offsets + n + i, _mm512_add_epi32(first, _mm512_mullo_epi32(wide(at), step)));
    }
    n += count;
  }
  return n;
}
#endif

HM_INLINE int32_t list_run(const Numbers& elements, const Lists& lists, int32_t n, const float* from, int64_t k, int64_t columns, int64_t b_row) {
#if defined(__AVX512F__)
  vi offset = (lanes() + static_cast<int32_t>(k)) * static_cast<int32_t>(b_row);
  for (int64_t j = 0; j < columns; j += kWidth, offset += static_cast<int32_t>(kWidth * b_row)) {
    const vf v = elements.some(from + j, lanes_at(j, columns));
    const auto mask = static_cast<__mmask16>(nonzero_mask(v));
    store(lists.values + n, _mm512_maskz_compress_ps(mask, v));  // whole vectors, as above
    _mm512_storeu_si512(lists.offsets + n, _mm512_maskz_compress_epi32(mask, (__m512i)offset));
    n += __builtin_popcount(mask);
  }
  return n;
#else
  return list_lanes(elements, lists, n, from, k, columns, b_row);
#endif
}
HM_INLINE int32_t list_run(const Bytes& elements, const Lists& lists, int32_t n, const uint8_t* from, int64_t k, int64_t columns, int64_t b_row) {
#if defined(__AVX512F__)
  if (elements.packs) return list_packed(elements.scale, lists, n, from, k, columns, b_row);
#endif
  return list_lanes(elements, lists, n, from, k, columns, b_row);
}

// One list after the other: A's rows are contiguous.
template <typename Elements>
HM_INLINE void list_rows(const Elements& elements, const SparseContext& c, const typename Elements::Element* a, Range rows, const Lists& lists) {
  const Product& p = c.product;
  int32_t n = 0;
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t piece = 0; piece < c.pieces; ++piece) {
      const int64_t begin = piece * c.piece, end = piece + 1 < c.pieces ? begin + c.piece : p.k;
      SparseSegment& s = lists.segments[piece * p.m + i];
      s.begin = n;
      n = list_run(elements, lists, n, a + i * p.a_row + begin, begin, end - begin, p.b_row);
      s.count = n - s.begin;
    }
}

// A's columns are contiguous: a few rows at a time are brought into runs. A single row has one piece, however long.
template <typename Elements>
HM_INLINE void list_columns(const Elements& elements, const SparseContext& c, const typename Elements::Element* a, Range rows, const Lists& lists) {
  constexpr int64_t kRuns = 16;
  alignas(64) typename Elements::Element runs[kRuns * kSparsePiece];
  const Product& p = c.product;
  int32_t n = 0;
  for (int64_t piece = 0; piece < c.pieces; ++piece) {
    const int64_t begin = piece * c.piece, end = piece + 1 < c.pieces ? begin + c.piece : p.k;
    SparseSegment* segments = lists.segments + piece * p.m;
    for (int64_t i = rows.begin; i < rows.end; i += kRuns) {
      const int64_t own = rows.end - i < kRuns ? rows.end - i : kRuns;
      for (int64_t k = begin; k < end; k += kSparsePiece) {
        const int64_t columns = end - k < kSparsePiece ? end - k : kSparsePiece;
        transpose(a + k * p.a_column + i, p.a_column, runs, kSparsePiece, columns, own);
        for (int64_t r = 0; r < own; ++r) {
          SparseSegment& s = segments[i + r];
          if (k == begin) s.begin = n;
          n = list_run(elements, lists, n, runs + r * kSparsePiece, k, columns, p.b_row);
          s.count = n - s.begin;
        }
      }
    }
  }
}

template <typename Elements>
HM_INLINE void build(const Elements& elements, const SparseContext& c, const typename Elements::Element* a, Range rows, const Lists& lists, int32_t& verdict) {
  verdict = c.always || is_sparse(c.product, a, rows);
  if (!verdict) return;
  if (c.product.a_column == 1)
    list_rows(elements, c, a, rows, lists);
  else
    list_columns(elements, c, a, rows, lists);
}

struct List {
  const float* values;
  const int32_t* offsets;
  int64_t count;
};

// How a panel of C begins and ends.
struct Finish {
  bool add;           // to what C holds
  const float* old;   // null, or C = old - rate * sum
  float rate;
};

// How the last vector of a panel is filled: wholly, in part, or not beyond its lower half, which costs half as much.
enum class Last { whole, part, half };

// kVectors vectors of one row of C; the last holds `lanes_left`.
template <int kVectors, Last kLast>
HM_INLINE void sum_rows(const List& list, const float* b, float* c, const Finish& f, int64_t lanes_left) {
  constexpr int kWhole = kVectors - (kLast == Last::half);  // and a half
  constexpr int64_t kRest = kWhole * kWidth;
  const auto some = [&](const float* p, int v) __attribute__((always_inline)) {
    return kLast != Last::part || v + 1 < kVectors ? load(p + v * kWidth) : load_part(p + v * kWidth, lanes_left);
  };
  vf sum[kWhole > 0 ? kWhole : 1];
  vh rest{};
#pragma GCC unroll 16
  for (int v = 0; v < kWhole; ++v) sum[v] = f.add ? some(c, v) : vf{};
  if (kLast == Last::half && f.add) rest = load_half(c + kRest, lanes_left);
  for (int64_t e = 0; e < list.count; ++e) {
    const vf x = splat(list.values[e]);
    const float* row = b + list.offsets[e];
#pragma GCC unroll 16
    for (int v = 0; v < kWhole; ++v) sum[v] = fma(x, some(row, v), sum[v]);
    if (kLast == Last::half) rest = fma(x, load_half(row + kRest, lanes_left), rest);
  }
#pragma GCC unroll 16
  for (int v = 0; v < kWhole; ++v) {
    float* to = c + v * kWidth;
    if (f.old) sum[v] = some(f.old, v) - f.rate * sum[v];
    if (kLast != Last::part || v + 1 < kVectors)
      store(to, sum[v]);
    else
      store_part(to, sum[v], lanes_left);
  }
  if (kLast == Last::half) {
    if (f.old) rest = load_half(f.old + kRest, lanes_left) - f.rate * rest;
    store_half(c + kRest, rest, lanes_left);
  }
}

using SumRows = void (*)(const List&, const float*, float*, const Finish&, int64_t);
template <int kVectors, Last kLast>
[[gnu::noinline, maybe_unused]] void sum_rows_out(const List& list, const float* b, float* c, const Finish& f,
                                                  int64_t lanes_left) {
  sum_rows<kVectors, kLast>(list, b, c, f, lanes_left);
}
template <Last kLast>
constexpr SumRows kSumRows[] = {sum_rows_out<1, kLast>, sum_rows_out<2, kLast>, sum_rows_out<3, kLast>, sum_rows_out<4, kLast>,
                                sum_rows_out<5, kLast>, sum_rows_out<6, kLast>, sum_rows_out<7, kLast>, sum_rows_out<8, kLast>};
HM_INLINE SumRows panel_function(int64_t vectors, int64_t lanes_left) {
  if (lanes_left >= kWidth) return kSumRows<Last::whole>[vectors - 1];
  if constexpr (kHalves)
    if (lanes_left <= kWidth / 2) return kSumRows<Last::half>[vectors - 1];
  return kSumRows<Last::part>[vectors - 1];
}

// kRows rows of B at once over the whole width: for a single row of C, which stays in cache.
template <int kRows>
HM_INLINE void add_rows(const float* values, const int32_t* offsets, const float* b, float* c, int64_t columns,
                        bool add) {
  vf x[kRows];
  const float* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) x[r] = splat(values[r]), row[r] = b + offsets[r];
  int64_t j = 0;
  for (; j + kWidth <= columns; j += kWidth) {
    vf sum = add ? load(c + j) : vf{};
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum = fma(x[r], load(row[r] + j), sum);
    store(c + j, sum);
  }
  for (; j < columns; ++j) {  // few, and cheaper than masks
    float sum = add ? c[j] : 0;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum += values[r] * row[r][j];
    c[j] = sum;
  }
}

HM_INLINE void sum_whole_rows(const List& list, const float* b, float* c, int64_t columns, bool add) {
  int64_t e = 0;
  for (; e + 8 <= list.count; e += 8) add_rows<8>(list.values + e, list.offsets + e, b, c, columns, add || e > 0);
  for (; e + 2 <= list.count; e += 2) add_rows<2>(list.values + e, list.offsets + e, b, c, columns, add || e > 0);
  for (; e < list.count; ++e) add_rows<1>(list.values + e, list.offsets + e, b, c, columns, add || e > 0);
  if (list.count == 0 && !add)
    for (int64_t j = 0; j < columns; j += kWidth) store_some(c + j, vf{}, lanes_at(j, columns));
}

}  // namespace

void sparse_build(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const SparseContext*>(context);
  const void* a = buffers[c.product.a];
  const Range rows = build_range(c, part);
  const Lists lists = lists_of(c, buffers, part);
  if (c.product.scale != 0) build(Bytes{c.product.scale, c.packs_bytes}, c, static_cast<const uint8_t*>(a), rows, lists, lists.verdicts[part]);
  else build(Numbers{}, c, static_cast<const float*>(a), rows, lists, lists.verdicts[part]);
}

namespace {

// What one part computes: rows and columns (in elements) of C.
struct Tile {
  Range rows, columns;
};

// One panel of columns from j on, over one piece of A.
HM_INLINE void multiply_panel(const SparseContext& c, void* const* buffers, const Tile& tile, int64_t piece, int64_t j,
                              int64_t vectors) {
  const Product& p = c.product;
  const float* b = static_cast<const float*>(buffers[p.b]) + j;
  float* to = static_cast<float*>(buffers[p.c]) + j;
  const float* old = c.update ? (piece ? to : static_cast<const float*>(buffers[c.old]) + j) : nullptr;
  const bool adds = piece > 0 || p.accumulate;
  Finish finish{!c.update && adds, nullptr, c.update ? *static_cast<const float*>(buffers[c.rate]) : 0};
  // Only a first piece that does not write over what it reads has something to do for an empty list.
  const bool skips = c.update ? old == to : adds;
  const int64_t lanes_left = p.n - j - (vectors - 1) * kWidth;
  const SumRows sum = panel_function(vectors, lanes_left);
  uint32_t builder = 0;
  while (build_range(c, builder).end <= tile.rows.begin) ++builder;
  for (int64_t i = tile.rows.begin; i < tile.rows.end; ++builder) {
    const Lists lists = lists_of(c, buffers, builder);
    const int64_t built = build_range(c, builder).end, end = built < tile.rows.end ? built : tile.rows.end;
    const SparseSegment* segments = lists.segments + piece * p.m;
    for (; i < end; ++i) {
      const SparseSegment& s = segments[i];
      if (s.count == 0 && skips) continue;
      if (c.update) finish.old = old + i * p.n;
      sum({lists.values + s.begin, lists.offsets + s.begin, s.count}, b, to + i * p.n, finish, lanes_left);
    }
  }
}

}  // namespace

void sparse_multiply(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const SparseContext*>(context);
  const Product& p = c.product;
  const Range vectors = share((p.n + kWidth - 1) / kWidth, c.column_parts, part / c.row_parts);
  const int64_t last = vectors.end * kWidth < p.n ? vectors.end * kWidth : p.n;
  const Tile tile{share(p.m, c.row_parts, part % c.row_parts), {vectors.begin * kWidth, last}};
  float* to = static_cast<float*>(buffers[p.c]) + tile.columns.begin;
  if (p.m == 1 && c.pieces == 1 && !c.update) {
    const Lists lists = lists_of(c, buffers, 0);
    const SparseSegment& s = lists.segments[0];
    sum_whole_rows({lists.values + s.begin, lists.offsets + s.begin, s.count},
                   static_cast<const float*>(buffers[p.b]) + tile.columns.begin, to, last - tile.columns.begin, p.accumulate);
  } else {
    const int64_t own = vectors.end - vectors.begin, panels = (own + kPanel - 1) / kPanel;
    for (int64_t panel = 0; panel < panels; ++panel) {
      const Range r = share(own, static_cast<uint32_t>(panels), static_cast<uint32_t>(panel));
      for (int64_t piece = 0; piece < c.pieces; ++piece)
        multiply_panel(c, buffers, tile, piece, (vectors.begin + r.begin) * kWidth, r.end - r.begin);
    }
  }
  if (p.has_bias || p.activation)
    epilogue(to + tile.rows.begin * p.n, tile.rows.end - tile.rows.begin, last - tile.columns.begin, p.n,
             p.has_bias ? static_cast<const float*>(buffers[p.bias]) + tile.columns.begin : nullptr, p.activation);
}

namespace {

// kRows rows of w: new = w - x b, and the sum over w b where the slope is wanted. b is read once for all of them.
template <int kRows, bool kSlope>
HM_INLINE void step_rows(const float* const* row, float* const* to, const float* x, const float* b, int64_t n,
                         float* slope) {
  vf sum[kRows][2] = {}, factor[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) factor[r] = splat(x[r]);
  const auto step = [&](int64_t j, int half) __attribute__((always_inline)) {
    const vf y = load(b + j);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const vf old = load(row[r] + j);
      if (kSlope) sum[r][half] = fma(old, y, sum[r][half]);
      store(to[r] + j, old - factor[r] * y);
    }
  };
  int64_t j = 0;
  for (; j + 2 * kWidth <= n; j += 2 * kWidth) step(j, 0), step(j + kWidth, 1);
  if (j + kWidth <= n) step(j, 0), j += kWidth;
  float rest[kRows] = {};
  for (; j < n; ++j)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float old = row[r][j];
      if (kSlope) rest[r] += old * b[j];
      to[r][j] = old - x[r] * b[j];
    }
  if (kSlope)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) slope[r] = sum_of(sum[r][0] + sum[r][1]) + rest[r];
}

// Rows gathered until there are enough to share b.
template <bool kSlope>
HM_INLINE void step_active_rows(const OuterContext& c, Range rows, const float* w, const float* a, const float* b,
                                float rate, float* to, float* slope) {
  constexpr int kRows = 4;
  const float* from[kRows];
  float* into[kRows];
  float x[kRows], slopes[kRows];
  int64_t which[kRows];
  int waiting = 0;
  const auto run = [&](auto count) __attribute__((always_inline)) {
    step_rows<decltype(count)::value, kSlope>(from, into, x, b, c.columns, slopes);
    if (kSlope)
      for (int r = 0; r < decltype(count)::value; ++r)
        slope[which[r]] = c.slope == OuterContext::all || !(a[which[r]] <= 0) ? slopes[r] : 0;
    waiting = 0;
  };
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    if (a[i] == 0 && w == to && (!kSlope || c.slope == OuterContext::active)) {
      if (kSlope) slope[i] = 0;
      continue;
    }
    from[waiting] = w + i * c.columns;
    into[waiting] = to + i * c.columns;
    x[waiting] = rate * a[i];
    which[waiting++] = i;
    if (waiting == kRows) run(Count<kRows>{});
  }
  const int left = waiting;
  for (int r = 0; r < left; ++r) {
    from[0] = from[r], into[0] = into[r], x[0] = x[r], which[0] = which[r];
    run(Count<1>{});
  }
}

}  // namespace

// w, a, b, lr -> w, slope?
void sgd_outer(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OuterContext*>(context);
  const float *w = static_cast<const float*>(buffers[0]), *a = static_cast<const float*>(buffers[1]),
              *b = static_cast<const float*>(buffers[2]);
  const float rate = *static_cast<const float*>(buffers[3]);
  float* to = static_cast<float*>(buffers[4]);
  const Range rows = share(c.rows, c.parts, part);
  if (c.slope != OuterContext::none)
    step_active_rows<true>(c, rows, w, a, b, rate, to, static_cast<float*>(buffers[5]));
  else
    step_active_rows<false>(c, rows, w, a, b, rate, to, nullptr);
}

}  // namespace harmonics::cpu::HM_ISA
