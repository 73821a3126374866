// Micro-kernels for small matrix products. The order of summation depends on sizes only.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kPanelVectors = 4;
#else
constexpr int kPanelVectors = 2;
#endif
constexpr int kPanelRows = 6;
constexpr int64_t kPanelDepth = 256;

struct Matrix {
  const float* data;
  int64_t row, column;  // strides
  HM_INLINE const float* at(int64_t r, int64_t c) const { return data + r * row + c * column; }
};

// ---- row-major B: elements of A are broadcast over vectors of B
// ---------------------------------------------

// Prefetch policy, called once per k-loop step of a tile. This one does nothing.
struct NoFetch {
  HM_INLINE void one() {}
};

// Register block of kRows x (kVectors * kWidth) of C; the last vector has `lanes_left` columns.
template <int kRows, int kVectors, bool kFull, typename Fetch>
HM_INLINE void panel(Matrix a, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t depth, bool add,
                     int64_t lanes_left, Fetch& fetch) {
  vf sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const float* p = c + i * c_row + v * kWidth;
      sum[i][v] = !add ? vf{} : kFull || v + 1 < kVectors ? load(p) : load_part(p, lanes_left);
    }
  for (int64_t k = 0; k < depth; ++k) {
    fetch.one();
    vf row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      row[v] = kFull || v + 1 < kVectors ? load(b + k * b_row + v * kWidth)
                                         : load_part(b + k * b_row + v * kWidth, lanes_left);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(*a.at(i, k));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* p = c + i * c_row + v * kWidth;
      if (kFull || v + 1 < kVectors)
        store(p, sum[i][v]);
      else
        store_part(p, sum[i][v], lanes_left);
    }
}

template <int kRows, int kVectors, typename Fetch>
HM_INLINE void panel_of_rows(Matrix a, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t n, int64_t depth,
                             bool add, Fetch& fetch) {
  int64_t j = 0;
  for (; j + kVectors * kWidth <= n; j += kVectors * kWidth)
    panel<kRows, kVectors, true>(a, b + j, b_row, c + j, c_row, depth, add, kWidth, fetch);
  if constexpr (kVectors > 2)
    for (; j + 2 * kWidth <= n; j += 2 * kWidth)
      panel<kRows, 2, true>(a, b + j, b_row, c + j, c_row, depth, add, kWidth, fetch);
  for (; j + kWidth <= n; j += kWidth) panel<kRows, 1, true>(a, b + j, b_row, c + j, c_row, depth, add, kWidth, fetch);
  if (j < n) panel<kRows, 1, false>(a, b + j, b_row, c + j, c_row, depth, add, n - j, fetch);
}

template <typename Fetch = NoFetch>
[[gnu::noinline, maybe_unused]] void gemm_broadcast(int64_t m, int64_t n, int64_t depth, Matrix a, const float* b,
                                                    int64_t b_row, float* c, int64_t c_row, bool add,
                                                    Fetch fetch = {}) {
  for (int64_t k = 0; k < depth; k += kPanelDepth, add = true) {
    const int64_t d = depth - k < kPanelDepth ? depth - k : kPanelDepth;
    const float* bk = b + k * b_row;
    constexpr int64_t kColumns = kPanelVectors * kWidth * 4;  // columns of B that stay in cache while A is read
    for (int64_t j = 0; j < n; j += kColumns) {
      const int64_t w = n - j < kColumns ? n - j : kColumns;
      int64_t i = 0;
      if constexpr (kPanelVectors > 2) {  // narrow C: twice the rows for the same number of accumulators
        for (; w <= 2 * kWidth && i + 2 * kPanelRows <= m; i += 2 * kPanelRows)
          panel_of_rows<2 * kPanelRows, 2>({a.at(i, k), a.row, a.column}, bk + j, b_row, c + i * c_row + j, c_row, w, d,
                                           add, fetch);
        for (; w <= 2 * kWidth && i + 8 <= m; i += 8)
          panel_of_rows<8, 2>({a.at(i, k), a.row, a.column}, bk + j, b_row, c + i * c_row + j, c_row, w, d, add, fetch);
      }
      // Divides eight rows into four and four: two rows have too few accumulators to hide the latency of addition.
      const int64_t sixes = kPanelVectors > 2 && (m - i) % kPanelRows == 2 && m - i >= 8 ? m - 8 : m;
      for (; i + kPanelRows <= sixes; i += kPanelRows)
        panel_of_rows<kPanelRows, kPanelVectors>({a.at(i, k), a.row, a.column}, bk + j, b_row, c + i * c_row + j, c_row,
                                                 w, d, add, fetch);
      if (m - i == 8) {
        panel_of_rows<4, kPanelVectors>({a.at(i, k), a.row, a.column}, bk + j, b_row, c + i * c_row + j, c_row, w, d,
                                        add, fetch);
        i += 4;
      }
      const Matrix rest{a.at(i, k), a.row, a.column};
      float* to = c + i * c_row + j;
      switch (m - i) {
        case 5:
          panel_of_rows<5, kPanelVectors>(rest, bk + j, b_row, to, c_row, w, d, add, fetch);
          break;
        case 4:
          panel_of_rows<4, kPanelVectors>(rest, bk + j, b_row, to, c_row, w, d, add, fetch);
          break;
        case 3:
          panel_of_rows<3, kPanelVectors>(rest, bk + j, b_row, to, c_row, w, d, add, fetch);
          break;
        case 2:
          panel_of_rows<2, 4>(rest, bk + j, b_row, to, c_row, w, d, add, fetch);
          break;
        case 1:
          panel_of_rows<1, 8>(rest, bk + j, b_row, to, c_row, w, d, add, fetch);
          break;
        default:
          break;
      }
    }
  }
}

// ---- row-major A, column-major B: inner products
// -----------------------------------------------------------

// Returns the horizontal sums of four vectors.
HM_INLINE __m128 sums_of(vf a, vf b, vf c, vf d) {
#if defined(__AVX512F__)
  const auto fold = [](vf v) __attribute__((always_inline)) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  };
  const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
#elif defined(__AVX2__)
  const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
#else
  return _mm_hadd_ps(_mm_hadd_ps(a, b), _mm_hadd_ps(c, d));
#endif
}

// sum += kRows rows of A (stride a_row) times kColumns columns of B (stride b_column), all contiguous along k.
template <int kRows, int kColumns>
HM_INLINE void add_inner_products(const float* a, int64_t a_row, const float* b, int64_t b_column, int64_t depth,
                                  vf (&sum)[kRows][kColumns]) {
  int64_t k = 0;
  for (; k + kWidth <= depth; k += kWidth) {
    vf x[kRows];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) x[i] = load(a + i * a_row + k);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const vf y = load(b + j * b_column + k);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(x[i], y, sum[i][j]);
    }
  }
  if (k < depth) {
    vf x[kRows];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) x[i] = load_part(a + i * a_row + k, depth - k);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const vf y = load_part(b + j * b_column + k, depth - k);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(x[i], y, sum[i][j]);
    }
  }
}

// C = A B, or C += A B if `add`; operands as above.
template <int kRows, int kColumns>
HM_INLINE void inner_products(const float* a, int64_t a_row, const float* b, int64_t b_column, float* c, int64_t c_row,
                              int64_t depth, bool add) {
  vf sum[kRows][kColumns] = {};
  add_inner_products<kRows, kColumns>(a, a_row, b, b_column, depth, sum);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    float* to = c + i * c_row;
    if constexpr (kColumns % 4 == 0) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += 4) {
        const __m128 s = sums_of(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
        _mm_storeu_ps(to + j, add ? _mm_add_ps(_mm_loadu_ps(to + j), s) : s);
      }
    } else {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        const float s = _mm_cvtss_f32(sums_of(sum[i][j], vf{}, vf{}, vf{}));
        to[j] = add ? to[j] + s : s;
      }
    }
  }
}

template <int kRows, int kColumns>
HM_INLINE void inner_rows(const float* a, int64_t a_row, const float* b, int64_t b_column, float* c, int64_t c_row,
                          int64_t n, int64_t depth, bool add) {
  int64_t j = 0;
  for (; j + kColumns <= n; j += kColumns)
    inner_products<kRows, kColumns>(a, a_row, b + j * b_column, b_column, c + j, c_row, depth, add);
  for (; j + 2 <= n; j += 2) inner_products<kRows, 2>(a, a_row, b + j * b_column, b_column, c + j, c_row, depth, add);
  if (j < n) inner_products<kRows, 1>(a, a_row, b + j * b_column, b_column, c + j, c_row, depth, add);
}

[[gnu::noinline, maybe_unused]] void gemm_inner(int64_t m, int64_t n, int64_t depth, const float* a, int64_t a_row,
                                                const float* b, int64_t b_column, float* c, int64_t c_row, bool add) {
  constexpr int64_t kColumns = 32;
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t w = n - j < kColumns ? n - j : kColumns;
    const float* bj = b + j * b_column;
    int64_t i = 0;
    for (; i + 3 <= m; i += 3)
      inner_rows<3, 4>(a + i * a_row, a_row, bj, b_column, c + i * c_row + j, c_row, w, depth, add);
    if (m - i == 2) inner_rows<2, 4>(a + i * a_row, a_row, bj, b_column, c + i * c_row + j, c_row, w, depth, add);
    if (m - i == 1) inner_rows<1, 8>(a + i * a_row, a_row, bj, b_column, c + i * c_row + j, c_row, w, depth, add);
  }
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
