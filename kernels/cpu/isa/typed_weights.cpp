// Products with weights of 16-bit floats and stored types. Every result is the sum of one inner product in the order
// of gemm_inner, so it does not depend on how many rows are multiplied together.
#include "../typed_weights.hpp"

#include <cstring>

#include <harmonics/abi.h>

#include "gemm.hpp"
#include "kernels.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- vectors of numbers from bytes

HM_INLINE __m128i load_bytes(const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Vector `i` of the sixteen signed bytes.
template <int i>
HM_INLINE vf floats_of(__m128i bytes) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8 * i)));
#else
  return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_srli_si128(bytes, 4 * i)));
#endif
}

HM_INLINE uint16_t load_u16(const char* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// The f16 at p in every lane.
HM_INLINE vf splat_half(const char* p) {
  const uint16_t h = load_u16(p);
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(h)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(h)));
#else
  const int32_t sign = (h & 0x8000) << 16, magnitude = (h & 0x7fff) << 13;
  // 2^112 moves the exponent, also of subnormal numbers
  const vf moved = as_float(splat_int(magnitude)) * splat(0x1p112f);
  return as_float((magnitude >= 0x0f800000 ? splat_int(magnitude | 0x7f800000) : bits(moved)) | splat_int(sign));
#endif
}

// ---- element types: `each` gives the kStep numbers from element k of a row as vectors, `part` the last n of them

template <typename Load>
struct Halves {
  static constexpr int64_t kStep = kWidth;
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, F f) {
    f(0, Load::of(row + 2 * k));
  }
  HM_INLINE static vf part(const char* row, int64_t k, int64_t n) {
    char bytes[2 * kWidth] = {};
    for (int64_t i = 0; i < 2 * n; ++i) bytes[i] = row[2 * k + i];
    return Load::of(bytes);
  }
};
struct LoadBFloat {
  HM_INLINE static vf of(const char* p) {
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bytes(p)), 16);
#else
    return (vf)_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 16);
#endif
  }
};
using BFloats = Halves<LoadBFloat>;

#if defined(__AVX2__)
struct LoadHalf {
  HM_INLINE static vf of(const char* p) {
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
    return _mm256_cvtph_ps(load_bytes(p));
#endif
  }
};
using Float16s = Halves<LoadHalf>;
#endif

// Blocks of 32.
template <typename Bytes>
struct Blocks {
  static constexpr int64_t kStep = 32;
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, F f) {
    const char* block = row + k / 32 * Bytes::kBlock;
    const vf scale = splat_half(block);
    const __m128i first = Bytes::first(block + 2), second = Bytes::second(block + 2);
    constexpr int kVectors = 16 / kWidth;
    f(0, scale * floats_of<0>(first));
    if constexpr (kVectors > 1) f(1, scale * floats_of<1>(first));
    if constexpr (kVectors > 2) f(2, scale * floats_of<2>(first)), f(3, scale * floats_of<3>(first));
    f(kVectors, scale * floats_of<0>(second));
    if constexpr (kVectors > 1) f(kVectors + 1, scale * floats_of<1>(second));
    if constexpr (kVectors > 2)
      f(kVectors + 2, scale * floats_of<2>(second)), f(kVectors + 3, scale * floats_of<3>(second));
  }
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // rows are whole blocks
};
struct EightBits {
  static constexpr int64_t kBlock = 34;
  HM_INLINE static __m128i first(const char* p) { return load_bytes(p); }
  HM_INLINE static __m128i second(const char* p) { return load_bytes(p + 16); }
};
struct FourBits {
  static constexpr int64_t kBlock = 18;
  HM_INLINE static __m128i less_8(__m128i v) {
    return _mm_sub_epi8(_mm_and_si128(v, _mm_set1_epi8(15)), _mm_set1_epi8(8));
  }
  HM_INLINE static __m128i first(const char* p) { return less_8(load_bytes(p)); }
  HM_INLINE static __m128i second(const char* p) { return less_8(_mm_srli_epi16(load_bytes(p), 4)); }
};

// ---- products

// kRows rows of A times kColumns rows of the weight.
template <typename W, int kRows, int kColumns>
HM_INLINE void typed_products(const float* a, int64_t a_row, const char* w, int64_t row_bytes, float* c, int64_t c_row,
                              int64_t depth) {
  vf sum[kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + W::kStep <= depth; k += W::kStep) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
      W::each(
          w + j * row_bytes, k, [&](int v, vf y) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load(a + i * a_row + k + v * kWidth), y, sum[i][j]);
          });
  }
  if (k < depth) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const vf y = W::part(w + j * row_bytes, k, depth - k);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load_part(a + i * a_row + k, depth - k), y, sum[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    float* to = c + i * c_row;
    if constexpr (kColumns % 4 == 0) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += 4)
        _mm_storeu_ps(to + j, sums_of(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]));
    } else {
      static_assert(kColumns == 1);
      to[0] = _mm_cvtss_f32(sums_of(sum[i][0], vf{}, vf{}, vf{}));
    }
  }
}

template <typename W, int kRows, int kColumns>
void typed_rows(const float* a, int64_t a_row, const char* w, int64_t row_bytes, float* c, int64_t c_row, int64_t n,
                int64_t depth) {
  int64_t j = 0;
  for (; j + kColumns <= n; j += kColumns)
    typed_products<W, kRows, kColumns>(a, a_row, w + j * row_bytes, row_bytes, c + j, c_row, depth);
  for (; j < n; ++j) typed_products<W, kRows, 1>(a, a_row, w + j * row_bytes, row_bytes, c + j, c_row, depth);
}

template <typename W>
void decode_row(const char* row, float* to, int64_t depth) {
  int64_t k = 0;
  for (; k + W::kStep <= depth; k += W::kStep)
    W::each(
        row, k, [&](int v, vf y) __attribute__((always_inline)) { store(to + k + v * kWidth, y); });
  if (k < depth) store_part(to + k, W::part(row, k, depth - k), depth - k);
}

// A block of C: rows of A times `n` rows of the weight. `panel`: room for c.panel decoded rows.
template <typename Row>
void by_panels(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n, float* panel,
               Row row) {
  const Product& p = c.product;
  for (int64_t j = 0; j < n; j += c.panel) {
    const int64_t columns = n - j < c.panel ? n - j : c.panel;
    for (int64_t i = 0; i < columns; ++i) row(w + (j + i) * c.row_bytes, panel + i * p.k);
    gemm_inner(m, columns, p.k, a, p.k, panel, p.k, y + j, p.n, false);
  }
}

template <typename W>
void typed_block(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n, float* panel) {
  const Product& p = c.product;
  if (m == 1) return typed_rows<W, 1, 8>(a, p.k, w, c.row_bytes, y, p.n, n, p.k);
  if (m == 2) return typed_rows<W, 2, 4>(a, p.k, w, c.row_bytes, y, p.n, n, p.k);
  if (m == kDirectRows) return typed_rows<W, kDirectRows, 4>(a, p.k, w, c.row_bytes, y, p.n, n, p.k);
  by_panels(c, a, w, y, m, n, panel, [&](const char* from, float* to) { decode_row<W>(from, to, p.k); });
}

}  // namespace

void typed_linear(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const TypedContext*>(context);
  const Product& p = c.product;
  const uint32_t row_part = part / c.column_parts, column_part = part % c.column_parts;
  const int64_t i = slice_begin(p.m, kRowGranule, c.row_parts, row_part),
                j = slice_begin(p.n, kPanelGranule, c.column_parts, column_part);
  const int64_t rows = slice_begin(p.m, kRowGranule, c.row_parts, row_part + 1) - i,
                columns = slice_begin(p.n, kPanelGranule, c.column_parts, column_part + 1) - j;
  const float* a = static_cast<const float*>(buffers[p.a]) + i * p.k;
  const char* w = static_cast<const char*>(buffers[p.b]) + j * c.row_bytes;
  float *y = static_cast<float*>(buffers[p.c]) + i * p.n + j,
        *panel = static_cast<float*>(buffers[p.c + 1]) + part * c.panel * p.k;
  switch (c.dtype) {
    case HX_BF16:
      typed_block<BFloats>(c, a, w, y, rows, columns, panel);
      break;
#if defined(__AVX2__)
    case HX_F16:
      typed_block<Float16s>(c, a, w, y, rows, columns, panel);
      break;
#endif
    case HX_Q8_0:
      typed_block<Blocks<EightBits>>(c, a, w, y, rows, columns, panel);
      break;
    case HX_Q4_0:
      typed_block<Blocks<FourBits>>(c, a, w, y, rows, columns, panel);
      break;
    default:
      by_panels(c, a, w, y, rows, columns, panel, [&](const char* from, float* to) { c.decode(from, to, p.k); });
  }
  end_product(p, buffers, i, i + rows, j, j + columns);
}

}  // namespace harmonics::cpu::HM_ISA
