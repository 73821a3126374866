// Large products whose left operand is contiguous along its columns, as slopes of weights have it: both operands are
// packed into panels (Goto, van de Geijn 2008), whose rows lie next to each other whatever their distance was.
#include "../matmul.hpp"

#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int kRows = 6, kVectors = 2;
constexpr int64_t kColumns = kVectors * kWidth;

// a: kDepth x kRows, b: kDepth x kColumns, both packed.
template <int kUsed>
HM_INLINE void tile(const float* a, const float* b, int64_t depth, float* c, int64_t c_row, int64_t columns, bool add) {
  vf sum[kUsed][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[i][v] = vf{};
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
    vf row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kWidth);
#pragma GCC unroll 6
    for (int i = 0; i < kUsed; ++i) {
      const vf x = splat(a[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kUsed; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + i * c_row + v * kWidth;
      const int64_t n = columns - v * kWidth;
      if (n >= kWidth)
        store(to, add ? load(to) + sum[i][v] : sum[i][v]);
      else if (n > 0)
        store_part(to, add ? load_part(to, n) + sum[i][v] : sum[i][v], n);
    }
}

template <int kUsed>
[[gnu::noinline, maybe_unused]] void tile_out(const float* a, const float* b, int64_t depth, float* c, int64_t c_row,
                                              int64_t columns, bool add) {
  tile<kUsed>(a, b, depth, c, c_row, columns, add);
}
using Tile = void (*)(const float*, const float*, int64_t, float*, int64_t, int64_t, bool);
constexpr Tile kTiles[] = {tile_out<1>, tile_out<2>, tile_out<3>, tile_out<4>, tile_out<5>, tile_out<6>};

// Panels of kRows rows; what is missing of the last is never used.
HM_INLINE void pack_a(const float* a, int64_t a_column, int64_t rows, int64_t depth, float* to) {
  for (int64_t i = 0; i < rows; i += kRows) {
    const int64_t used = rows - i < kRows ? rows - i : kRows;
    for (int64_t k = 0; k < depth; ++k, to += kRows) {
      const float* from = a + i + k * a_column;
      if (used == kRows)
        __builtin_memcpy(to, from, kRows * sizeof(float));
      else
        for (int64_t r = 0; r < used; ++r) to[r] = from[r];
    }
  }
}
HM_INLINE void pack_b(const float* b, int64_t b_row, int64_t columns, int64_t depth, float* to) {
  for (int64_t j = 0; j < columns; j += kColumns)
    for (int64_t k = 0; k < depth; ++k, to += kColumns)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const int64_t n = columns - j - v * kWidth;
        const float* from = b + k * b_row + j + v * kWidth;
        store(to + v * kWidth, n >= kWidth ? load(from) : n > 0 ? load_part(from, n) : vf{});
      }
}

}  // namespace

void packed_matmul(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const MatmulContext*>(context);
  const Product& p = c.product;
  const int64_t i0 = slice_begin(p.m, kRowGranule, c.row_parts, part / c.column_parts),
                i1 = slice_begin(p.m, kRowGranule, c.row_parts, part / c.column_parts + 1),
                j0 = slice_begin(p.n, kColumnGranule, c.column_parts, part % c.column_parts),
                j1 = slice_begin(p.n, kColumnGranule, c.column_parts, part % c.column_parts + 1);
  const float *a = static_cast<const float*>(buffers[p.a]), *b = static_cast<const float*>(buffers[p.b]);
  float* to = static_cast<float*>(buffers[p.c]);
  float* packed_a = static_cast<float*>(buffers[p.c + 1]) + part * kPackedFloats;
  float* packed_b = packed_a + kPackedRows * kPackedDepth;
  for (int64_t j = j0; j < j1; j += kPackedColumns) {
    const int64_t columns = j1 - j < kPackedColumns ? j1 - j : kPackedColumns;
    for (int64_t k = 0; k < p.k; k += kPackedDepth) {
      const int64_t depth = p.k - k < kPackedDepth ? p.k - k : kPackedDepth;
      pack_b(b + k * p.b_row + j, p.b_row, columns, depth, packed_b);
      for (int64_t i = i0; i < i1; i += kPackedRows) {
        const int64_t rows = i1 - i < kPackedRows ? i1 - i : kPackedRows;
        pack_a(a + i + k * p.a_column, p.a_column, rows, depth, packed_a);
        for (int64_t jj = 0; jj < columns; jj += kColumns)
          for (int64_t ii = 0; ii < rows; ii += kRows)
            kTiles[(rows - ii < kRows ? rows - ii : kRows) - 1](packed_a + ii * depth, packed_b + jj * depth, depth,
                                                                to + (i + ii) * p.n + j + jj, p.n, columns - jj,
                                                                p.accumulate || k > 0);
      }
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
