// Kernels of sparse_product.cpp.
#pragma once

#include "../sparse_product.hpp"

#include "column_sums.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int kPanel = HM_VECTOR_BYTES == 16 ? 4 : 8;  // accumulator registers

// Bit i is set if lane i is non-zero; NaN is non-zero.
HM_INLINE uint32_t nonzero_mask(vf v) { return mask_bits(v != vf{}); }

// Workspace: verdicts, then the mask of A, a word per 64 elements of a row, [pieces][m]; or a list of the only row.
HM_INLINE int32_t* verdicts_of(const SparseContext& c, void* const* buffers) {
  return static_cast<int32_t*>(buffers[c.workspace]);
}
HM_INLINE uint64_t* words_of(const SparseContext& c, void* const* buffers) {
  return reinterpret_cast<uint64_t*>(static_cast<char*>(buffers[c.workspace]) + kVerdictBytes);
}

// Elements of A with stride `step`: floats here, bytes times a scale below.
struct Numbers {
  const float* at;
  int64_t step;
  HM_INLINE Numbers from(int64_t place) const { return {at + place, step}; }
  HM_INLINE float one(int64_t i) const { return at[i * step]; }
};
struct Bytes {
  const uint8_t* at;
  int64_t step;
  float scale;
  HM_INLINE Bytes from(int64_t place) const { return {at + place, step, scale}; }
  HM_INLINE float one(int64_t i) const { return static_cast<float>(at[i * step]) * scale; }
};
// Calls `run` with the elements of A.
template <typename Run>
HM_INLINE void with_elements(const SparseContext& c, void* const* buffers, Run run) {
  const Product& p = c.product;
  if (p.scale != 0)
    run(Bytes{static_cast<const uint8_t*>(buffers[p.a]), p.a_column, p.scale});
  else
    run(Numbers{static_cast<const float*>(buffers[p.a]), p.a_column});
}

// Bit i is set if element i is non-zero; n <= 64.
HM_INLINE uint64_t nonzeros(const float* p, int64_t n) {
  uint64_t bits = 0;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) bits |= uint64_t{nonzero_mask(load(p + i))} << i;
  if (i < n) bits |= uint64_t{nonzero_mask(load_part(p + i, n - i))} << i;
  return bits;
}
HM_INLINE uint64_t nonzeros(const uint8_t* p, int64_t n) {
#if defined(__AVX512BW__)
  const __m512i v = _mm512_maskz_loadu_epi8(n < 64 ? (__mmask64{1} << n) - 1 : ~__mmask64{0}, p);
  return _mm512_test_epi8_mask(v, v);
#else
  uint8_t few[64] = {};
  if (n < 64) __builtin_memcpy(few, p, static_cast<size_t>(n)), p = few;
  uint64_t zeros = 0;
  for (int i = 0; i < 64; i += 16)
    zeros |= uint64_t{static_cast<uint32_t>(_mm_movemask_epi8(
                 _mm_cmpeq_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i)), _mm_setzero_si128())))}
             << i;
  return ~zeros;
#endif
}
HM_INLINE int64_t left(int64_t i, int64_t n) { return n - i < kSparsePiece ? n - i : kSparsePiece; }

// The elements that a part marks: contiguous runs, which are whole rows of A or pieces of its columns. `row`: index of
// the first row.
template <typename T>
struct Region {
  const T* at;
  int64_t runs, step, length, row;
};
template <typename T>
HM_INLINE Region<T> region_of(const SparseContext& c, const T* a, uint32_t part) {
  const Product& p = c.product;
  if (p.a_column == 1) {
    const Range rows = share(p.m, c.build_parts, part);
    return {a + rows.begin * p.a_row, rows.end - rows.begin, p.a_row, p.k, rows.begin};
  }
  const Range blocks = share((p.m + 63) / 64, c.build_parts, part);
  const int64_t begin = blocks.begin * 64, end = blocks.end * 64 < p.m ? blocks.end * 64 : p.m;
  return {a + begin, p.k, p.a_column, end - begin, begin};
}

// Returns the share of non-zeros in every `step`th run.
template <typename T>
HM_INLINE double density(const Region<T>& a, int64_t step) {
  int64_t count = 0, seen = 0;
  for (int64_t r = 0; r < a.runs; r += step, seen += a.length)
    for (int64_t i = 0; i < a.length; i += 64)
      count += __builtin_popcountll(nonzeros(a.at + r * a.step + i, left(i, a.length)));
  return static_cast<double>(count) / static_cast<double>(seen);
}
// Whether a sample of the elements is clearly denser than `most`. Then the search is skipped, which would also transfer
// cache lines from the threads that wrote them. A few runs are enough if they have hardly any zeros: reading more would
// wait for memory.
template <typename T>
HM_INLINE bool is_clearly_dense(const Region<T>& a, double most) {
  constexpr int64_t kStep = 8, kFewRuns = 4;
  constexpr double kClear = 4.0 / 3, kVeryClear = 0.95;
  if (a.runs < 4 * kStep) return false;
  return density(a, a.runs / kFewRuns) > kVeryClear || density(a, kStep) > kClear * most;
}

// Transposes 64 x 64 bits (Warren, Hacker's Delight, 7-3).
HM_INLINE void transpose_bits(uint64_t* rows) {
  uint64_t mask = 0x00000000ffffffff;
  for (int half = 32; half > 0; half /= 2, mask ^= mask << half)
    for (int block = 0; block < 64; block += 2 * half)
      for (int r = block; r < block + half; ++r) {
        const uint64_t swapped = (rows[r] >> half ^ rows[r + half]) & mask;
        rows[r + half] ^= swapped;
        rows[r] ^= swapped << half;
      }
}

// Marks the non-zeros of rows and returns their number.
template <typename T>
HM_INLINE int64_t mark_rows(const Region<T>& a, int64_t rows, uint64_t* words) {
  int64_t count = 0;
  for (int64_t r = 0; r < a.runs; ++r)
    for (int64_t k = 0; k < a.length; k += kSparsePiece) {
      const uint64_t bits = words[k / kSparsePiece * rows + r] = nonzeros(a.at + r * a.step + k, left(k, a.length));
      count += __builtin_popcountll(bits);
    }
  return count;
}
// Likewise for halves of the depth: one word has the lower halves of two pieces, the next word the upper halves.
template <typename T>
HM_INLINE int64_t mark_halves(const Region<T>& a, int64_t rows, uint64_t* words) {
  constexpr uint64_t kLower = (uint64_t{1} << kHalfPiece) - 1;
  int64_t count = 0;
  for (int64_t r = 0; r < a.runs; ++r)
    for (int64_t k = 0; k < a.length; k += 2 * kSparsePiece) {
      const T* at = a.at + r * a.step + k;
      const uint64_t first = nonzeros(at, left(k, a.length)),
                     next = k + kSparsePiece < a.length ? nonzeros(at + kSparsePiece, left(k + kSparsePiece, a.length))
                                                        : 0;
      uint64_t* to = words + k / kSparsePiece * rows + r;
      to[0] = (first & kLower) | next << kHalfPiece;
      to[rows] = first >> kHalfPiece | (next & ~kLower);
      count += __builtin_popcountll(first) + __builtin_popcountll(next);
    }
  return count;
}
// Likewise for runs that are columns.
template <typename T>
HM_INLINE int64_t mark_columns(const Region<T>& a, int64_t rows, uint64_t* words) {
  alignas(64) uint64_t block[64];
  int64_t count = 0;
  for (int64_t begin = 0; begin < a.runs; begin += kSparsePiece)
    for (int64_t i = 0; i < a.length; i += 64) {
      const int64_t own = left(i, a.length), columns = left(begin, a.runs);
      for (int64_t k = 0; k < columns; ++k) {
        block[k] = nonzeros(a.at + (begin + k) * a.step + i, own);
        count += __builtin_popcountll(block[k]);
      }
      for (int64_t k = columns; k < 64; ++k) block[k] = 0;
      transpose_bits(block);
      __builtin_memcpy(words + begin / kSparsePiece * rows + i, block, static_cast<size_t>(own) * sizeof *block);
    }
  return count;
}

template <typename T>
HM_INLINE int32_t mark(const SparseContext& c, const T* at, uint32_t part, uint64_t* words) {
  const Product& p = c.product;
  const Region<T> a = region_of(c, at, part);
  const double most = c.most_nonzeros < kSparse ? c.most_nonzeros : kSparse;
  if (!c.always && is_clearly_dense(a, most)) return 0;
  const int64_t count = c.halves == Halves::depth ? mark_halves(a, p.m, words + a.row)
                        : p.a_column == 1         ? mark_rows(a, p.m, words + a.row)
                                                  : mark_columns(a, p.m, words + a.row);
  const bool is_sparse = c.always || static_cast<double>(count) <= kSparse * static_cast<double>(a.runs * a.length);
  return is_sparse ? static_cast<int32_t>(1 + count) : 0;
}

struct List {
  float* values;
  int32_t* offsets;  // offset of B's row
  int64_t count;
};
// Returns the elements of a slice of the depth. The end of each slice's elements follows the first verdict.
HM_INLINE List list_of(const SparseContext& c, void* const* buffers, uint32_t slice) {
  auto* values = reinterpret_cast<float*>(static_cast<char*>(buffers[c.workspace]) + kVerdictBytes);
  const int32_t* ends = verdicts_of(c, buffers) + 1;
  const int64_t begin = slice > 0 ? ends[slice - 1] : 0;
  return {values + begin, reinterpret_cast<int32_t*>(values + list_floats(c.product)) + begin, ends[slice] - begin};
}

// Appends the non-zero elements [k, end) of the only row to the list, which has n, and returns its new length.
template <typename Elements>
HM_INLINE int32_t list_run(const Elements& a, const Product& p, const List& list, int64_t k, int64_t end, int32_t n) {
  for (; k < end; k += 64)
    for (uint64_t bits = nonzeros(a.at + k, left(k, end)); bits; bits &= bits - 1, ++n) {
      const int64_t at = k + __builtin_ctzll(bits);
      list.values[n] = a.one(at);
      list.offsets[n] = static_cast<int32_t>(at * p.b_row);
    }
  return n;
}
#if defined(__AVX512F__)
HM_INLINE int32_t list_run(const Numbers& a, const Product& p, const List& list, int64_t k, int64_t end, int32_t n) {
  const auto b_row = static_cast<int32_t>(p.b_row);
  vi offset = (lanes() + static_cast<int32_t>(k)) * b_row;
  for (; k < end; k += kWidth, offset += static_cast<int32_t>(kWidth * b_row)) {
    const vf v = load_some(a.at + k, lanes_at(k, end));
    const auto mask = static_cast<__mmask16>(nonzero_mask(v));
    // Stores whole vectors; the list has room for one more vector.
    store(list.values + n, _mm512_maskz_compress_ps(mask, v));
    _mm512_storeu_si512(list.offsets + n, _mm512_maskz_compress_epi32(mask, (__m512i)offset));
    n += __builtin_popcount(mask);
  }
  return n;
}
#endif

// Arguments of one pass over A for rows of C and a panel of columns.
template <typename Elements>
struct Panel {
  Elements a;  // from the first element of the pass, in the first row
  int64_t a_row;
  const uint64_t* words;  // mask of non-zeros, one word per row
  int64_t gap;            // added to positions marked in the upper half of a word
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row, rows;
  int64_t lanes_left;  // of the last vector
  bool adds;           // adds to C instead of overwriting it
  const float* old;    // update: C = old - rate * sum; the layout of C
  float rate;
};

// Lanes of a panel's last vector: all, some, or at most the lower half, which is cheaper.
enum class Last { whole, part, half };

// Computes kVectors vectors of every row of C.
template <int kVectors, Last kLast, bool kUpdate, typename Elements>
[[gnu::noinline, maybe_unused]] void sum_rows(const Panel<Elements>& panel) {
  constexpr int kWhole = kVectors - (kLast == Last::half);  // whole vectors; Last::half has half a vector more
  constexpr int64_t kRest = kWhole * kWidth;
  const int64_t lanes_left = panel.lanes_left, b_row = panel.b_row, gap = panel.gap, c_row = panel.c_row;
  const auto some = [=](const float* p, int v) __attribute__((always_inline)) {
    return kLast != Last::part || v + 1 < kVectors ? load(p + v * kWidth) : load_part(p + v * kWidth, lanes_left);
  };
  const float* const b = panel.b;
  const float* old = panel.old;
  const float rate = panel.rate;
  float* to = panel.c;
  // Rows without marks are skipped, unless they must be copied or initialised.
  const bool adds = panel.adds, skips = kUpdate ? old == to : adds;
  Elements a = panel.a;
  for (int64_t i = 0; i < panel.rows; ++i, a = a.from(panel.a_row), to += c_row, old += kUpdate ? c_row : 0) {
    uint64_t bits = panel.words[i];
    if (bits == 0 && skips) continue;
    vf sum[kWhole > 0 ? kWhole : 1];
    vh rest{};
#pragma GCC unroll 16
    for (int v = 0; v < kWhole; ++v) sum[v] = !kUpdate && adds ? some(to, v) : vf{};
    if (kLast == Last::half && !kUpdate && adds) rest = load_half(to + kRest, lanes_left);
    for (; bits; bits &= bits - 1) {
      const int64_t bit = __builtin_ctzll(bits), k = bit + (bit & gap);
      const vf x = splat(a.one(k));
      const float* row = b + k * b_row;
#pragma GCC unroll 16
      for (int v = 0; v < kWhole; ++v) sum[v] = fma(x, some(row, v), sum[v]);
      if (kLast == Last::half) rest = fma(x, load_half(row + kRest, lanes_left), rest);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kWhole; ++v) {
      if (kUpdate) sum[v] = some(old, v) - rate * sum[v];
      if (kLast != Last::part || v + 1 < kVectors)
        store(to + v * kWidth, sum[v]);
      else
        store_part(to + v * kWidth, sum[v], lanes_left);
    }
    if (kLast == Last::half) {
      if (kUpdate) rest = load_half(old + kRest, lanes_left) - rate * rest;
      store_half(to + kRest, rest, lanes_left);
    }
  }
}

template <typename Elements>
using SumRows = void (*)(const Panel<Elements>&);
template <Last kLast, bool kUpdate, typename E>
constexpr SumRows<E> kSumRows[] = {sum_rows<1, kLast, kUpdate, E>, sum_rows<2, kLast, kUpdate, E>,
                                   sum_rows<3, kLast, kUpdate, E>, sum_rows<4, kLast, kUpdate, E>,
                                   sum_rows<5, kLast, kUpdate, E>, sum_rows<6, kLast, kUpdate, E>,
                                   sum_rows<7, kLast, kUpdate, E>, sum_rows<8, kLast, kUpdate, E>};
template <bool kUpdate, typename Elements>
HM_INLINE void sum_panel(const Panel<Elements>& panel, int64_t vectors) {
  if (panel.lanes_left >= kWidth) return kSumRows<Last::whole, kUpdate, Elements>[vectors - 1](panel);
  if constexpr (kHalves)
    if (panel.lanes_left <= kWidth / 2) return kSumRows<Last::half, kUpdate, Elements>[vectors - 1](panel);
  kSumRows<Last::part, kUpdate, Elements>[vectors - 1](panel);
}

// Adds kRows rows of B at once to a single row of C, which stays in cache.
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
  for (; j < columns; ++j) {  // few columns: cheaper than masked vectors
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
  int32_t* verdicts = verdicts_of(c, buffers);
  with_elements(
      c, buffers, [&](const auto& a) __attribute__((always_inline)) {
        if (!is_listed(c)) {
          verdicts[part] = mark(c, a.at, part, words_of(c, buffers));
        } else {
          verdicts[0] = 1, verdicts[1] = 0;
          const List list = list_of(c, buffers, 0);
          int32_t n = 0;
          for (uint32_t i = 0; i < c.slices; ++i) {
            const Range slice = share(c.product.k, c.slices, i);
            verdicts[1 + i] = n = list_run(a, c.product, list, slice.begin, slice.end, n);
          }
        }
      });
}

namespace {

// A part's share of the product: a half, or a slice of the depth, vectors of columns, and a slice of the rows.
struct Slice {
  uint32_t half, row;
  Range vectors;
};
HM_INLINE Slice slice_at(const SparseContext& c, uint32_t part) {
  const uint32_t each = c.row_parts * c.column_parts, at = part % each;
  return {part / each, at % c.row_parts, share((c.product.n + kWidth - 1) / kWidth, c.column_parts, at / c.row_parts)};
}

// Calls `run` for each range of rows in a slice.
template <typename Run>
HM_INLINE void for_rows(const SparseContext& c, const Slice& slice, Run run) {
  const int64_t m = c.product.m;
  if (c.halves != Halves::rows) return run(share(m, c.row_parts, slice.row));
  const Range pieces = share((m + kSparsePiece - 1) / kSparsePiece, c.row_parts, slice.row);
  for (int64_t i = pieces.begin; i < pieces.end; ++i) {
    const int64_t begin = i * kSparsePiece + slice.half * kHalfPiece,
                  end = begin + kHalfPiece < m ? begin + kHalfPiece : m;
    if (begin < end) run(Range{begin, end});
  }
}

// Returns the sums of the second half of the depth; the sums of the first are in C.
HM_INLINE float* second_sums(const SparseContext& c, void* const* buffers) {
  return reinterpret_cast<float*>(static_cast<char*>(buffers[c.workspace]) + c.sums_offset);
}
// Returns the sums of a slice of the depth for the only row.
HM_INLINE float* sums_of_slice(const SparseContext& c, void* const* buffers, uint32_t slice) {
  const Product& p = c.product;
  return slice == 0 ? static_cast<float*>(buffers[p.c])
                    : second_sums(c, buffers) + (slice - 1) * ((p.n + 15) / 16 * 16);
}
// Adds the slices of the only row in order.
HM_INLINE void add_slices(const SparseContext& c, void* const* buffers) {
  const Product& p = c.product;
  float* const to = sums_of_slice(c, buffers, 0);
  for (uint32_t i = 1; i < c.slices; ++i) {
    const float* more = sums_of_slice(c, buffers, i);
    for (int64_t j = 0; j < p.n; j += kWidth) {
      const int64_t n = lanes_at(j, p.n);
      store_some(to + j, load_some(to + j, n) + load_some(more + j, n), n);
    }
  }
  end_product(p, buffers, 0, 1, 0, p.n);
}

// A pass over A: one word of each row, and the rows of B it selects.
struct Pass {
  int64_t word, begin;  // index of the word; first row of B
  bool is_first;
};
HM_INLINE int64_t passes_of(const SparseContext& c) { return c.halves == Halves::depth ? c.pieces / 2 : c.pieces; }
HM_INLINE Pass pass_at(const SparseContext& c, uint32_t half, int64_t i) {
  // Starts in the middle, where images have most non-zeros: the loads of cold lines of C overlap with that work.
  const int64_t passes = passes_of(c), at = (i + passes / 2) % passes;
  if (c.halves == Halves::depth) return {2 * at + half, 2 * at * kSparsePiece + half * kHalfPiece, i == 0};
  return {at, at * kSparsePiece, i == 0};
}

// Returns the arguments of one pass for a panel of columns from j, without rows.
template <typename Elements>
HM_INLINE Panel<Elements> panel_at(const SparseContext& c, void* const* buffers, const Pass& pass, int64_t j,
                                   int64_t vectors) {
  const Product& p = c.product;
  Panel<Elements> panel{};
  panel.a_row = p.a_row;
  panel.gap = c.halves == Halves::depth ? kHalfPiece : 0;
  panel.b = static_cast<const float*>(buffers[p.b]) + pass.begin * p.b_row + j;
  panel.b_row = p.b_row;
  panel.c_row = p.n;
  panel.lanes_left = p.n - j - (vectors - 1) * kWidth;
  panel.adds = !pass.is_first || p.accumulate;
  panel.rate = c.update ? *static_cast<const float*>(buffers[c.product.rate]) : 0;
  return panel;
}
// Sets the rows of A.
template <typename Elements>
HM_INLINE void take_rows(Panel<Elements>& panel, const SparseContext& c, const Elements& a, void* const* buffers,
                         const Pass& pass, Range rows) {
  panel.a = a.from(rows.begin * c.product.a_row + pass.begin * c.product.a_column);
  panel.words = words_of(c, buffers) + pass.word * c.product.m + rows.begin;
  panel.rows = rows.end - rows.begin;
}

// Computes one pass for a panel of columns from j.
template <typename Elements>
HM_INLINE void multiply_panel(const SparseContext& c, const Elements& a, void* const* buffers, const Slice& slice,
                              const Pass& pass, int64_t j, int64_t vectors) {
  const Product& p = c.product;
  float* to = c.halves == Halves::depth && slice.half ? second_sums(c, buffers) : static_cast<float*>(buffers[p.c]);
  const float* old = c.update ? static_cast<const float*>(pass.is_first ? buffers[c.product.old] : to) : nullptr;
  Panel<Elements> panel = panel_at<Elements>(c, buffers, pass, j, vectors);
  for_rows(
      c, slice, [&](Range rows) __attribute__((always_inline)) {
        const int64_t place = rows.begin * p.n + j;
        take_rows(panel, c, a, buffers, pass, rows);
        panel.c = to + place;
        panel.old = old ? old + place : nullptr;
        c.update ? sum_panel<true>(panel, vectors) : sum_panel<false>(panel, vectors);
      });
}

}  // namespace

void sparse_rows(const cpu::SparseContext& c, void* const* buffers, int64_t row, int64_t end, float* to) {
  const int64_t vectors = (c.product.n + kWidth - 1) / kWidth, panels = (vectors + kPanel - 1) / kPanel;
  with_elements(
      c, buffers, [&](const auto& a) __attribute__((always_inline)) {
        for (int64_t i = 0; i < panels; ++i) {
          const Range r = share(vectors, static_cast<uint32_t>(panels), static_cast<uint32_t>(i));
          for (int64_t k = 0; k < passes_of(c); ++k) {
            const Pass pass = pass_at(c, 0, k);
            auto panel = panel_at<std::decay_t<decltype(a)>>(c, buffers, pass, r.begin * kWidth, r.end - r.begin);
            take_rows(panel, c, a, buffers, pass, {row, end});
            panel.c = to + r.begin * kWidth;
            sum_panel<false>(panel, r.end - r.begin);
          }
        }
      });
}

// Phase 0: the product, or the halves or slices of the depth. Phase 1: their sum.
void sparse_multiply(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const SparseContext*>(context);
  const Product& p = c.product;
  if (phase == 1 && is_listed(c)) return add_slices(c, buffers);
  if (phase == 1) return end_halves(p, buffers, second_sums(c, buffers), c.sum_parts, part);
  const Slice slice = slice_at(c, part);
  const Range v = slice.vectors, columns{v.begin * kWidth, v.end * kWidth < p.n ? v.end * kWidth : p.n};
  if (is_listed(c)) {
    sum_whole_rows(list_of(c, buffers, slice.half), static_cast<const float*>(buffers[p.b]) + columns.begin,
                   sums_of_slice(c, buffers, slice.half) + columns.begin, columns.end - columns.begin,
                   p.accumulate && slice.half == 0);
    if (c.slices > 1) return;
  } else {
    const int64_t panels = (v.end - v.begin + kPanel - 1) / kPanel;
    with_elements(
        c, buffers, [&](const auto& a) __attribute__((always_inline)) {
          for (int64_t panel = 0; panel < panels; ++panel) {
            const Range r = share(v.end - v.begin, static_cast<uint32_t>(panels), static_cast<uint32_t>(panel));
            for (int64_t i = 0; i < passes_of(c); ++i)
              multiply_panel(c, a, buffers, slice, pass_at(c, slice.half, i), (v.begin + r.begin) * kWidth,
                             r.end - r.begin);
          }
        });
  }
  if (p.sums && slice.row == 0)  // same blocks, and so the same bits, as the dense product
    for (int64_t k = 0; k < p.k; k += kPackedDepth)
      sum_columns(static_cast<const float*>(buffers[p.b]) + k * p.b_row + columns.begin, p.b_row,
                  p.k - k < kPackedDepth ? p.k - k : kPackedDepth, columns.end - columns.begin,
                  static_cast<float*>(buffers[p.sums]) + columns.begin, k > 0);
  if (c.halves == Halves::depth || c.update) return;  // bias and activation are applied to the sum; updates have none
  const Range rows = share(p.m, c.row_parts, slice.row);
  end_product(p, buffers, rows.begin, rows.end, columns.begin, columns.end);
}

}  // namespace harmonics::cpu::HM_ISA
