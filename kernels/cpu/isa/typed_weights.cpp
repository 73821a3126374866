// Products with weights of 16-bit floats and stored types. Every result is the sum of one inner product in the order
// that the depth alone determines, so it does not depend on how many rows are multiplied together: lane i of a vector
// adds the products of elements i, i + kWidth, ... in turn, then the lanes are added.
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

// kWidth signed bytes from memory.
HM_INLINE vf load_floats(const char* p) {
#if defined(__AVX512F__)
  return floats_of<0>(load_bytes(p));
#elif defined(__AVX2__)
  return floats_of<0>(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  int32_t four;
  std::memcpy(&four, p, 4);
  return floats_of<0>(_mm_cvtsi32_si128(four));
#endif
}

HM_INLINE uint16_t load_u16(const char* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// kWidth numbers of f16.
HM_INLINE vf floats_of_halves(const uint16_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  const vi h = (vi)_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const vi magnitude = (h & 0x7fff) << 13;
  // 2^112 moves the exponent, also of subnormal numbers
  const vi moved = bits(as_float(magnitude) * splat(0x1p112f));
  return as_float((magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : moved) | (h & 0x8000) << 16);
#endif
}

// The value of v, which the compiler may not fuse with the operation that takes it.
HM_INLINE vf rounded(vf v) {
  asm("" : "+v"(v));
  return v;
}

#if defined(__AVX512F__)
// Sixteen numbers of a table by the low four bits of each lane.
HM_INLINE vf look_up(__m512i indices, vf table) { return _mm512_permutexvar_ps(indices, table); }
HM_INLINE __m512i widen(__m128i bytes) { return _mm512_cvtepu8_epi32(bytes); }
HM_INLINE __m512i high_bits(__m512i indices) { return _mm512_srli_epi32(indices, 4); }
#endif

// ---- element types: `each` gives the kStep numbers from element k of a row, in kStepBytes bytes, as vectors, `part`
// the last n of them

// Types without blocks have no scales.
constexpr int kGroup = 16;  // blocks whose scales are converted together
struct NoScales {
  static constexpr bool kScales = false;
  HM_INLINE static void scales(const char*, int64_t, int64_t, float*) {}
};

template <typename Load>
struct Halves : NoScales {
  static constexpr int64_t kStep = kWidth, kStepBytes = 2 * kWidth;
  HM_INLINE static int64_t at(int64_t k) { return 2 * k; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    f(0, Load::of(row + at(k)));
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

struct LoadHalf {
  HM_INLINE static vf of(const char* p) { return floats_of_halves(reinterpret_cast<const uint16_t*>(p)); }
};
using Float16s = Halves<LoadHalf>;

// Blocks of 32, the scale first.
template <typename Bytes>
struct Blocks {
  static constexpr int64_t kStep = 32, kStepBytes = Bytes::kBlock;
  static constexpr bool kScales = true;
  HM_INLINE static int64_t at(int64_t k) { return k / 32 * Bytes::kBlock; }
  // The scales of the blocks from element k on.
  HM_INLINE static void scales(const char* row, int64_t k, int64_t blocks, float* to) {
    alignas(64) uint16_t halves[kGroup] = {};
    for (int64_t i = 0; i < blocks; ++i) halves[i] = load_u16(row + (k / 32 + i) * Bytes::kBlock);
    for (int i = 0; i < kGroup; i += kWidth) store(to + i, floats_of_halves(halves + i));
  }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float scale_of_block, F f) {
    const char* block = row + at(k);
    const vf scale = splat(scale_of_block);
#if defined(__AVX512F__)
    if constexpr (Bytes::kTable) {
      const __m512i low = widen(load_bytes(block + 2));
      const vf table = scale * (__builtin_convertvector(lanes(), vf) - 8.0f);
      f(0, look_up(low, table));
      f(1, look_up(high_bits(low), table));
      return;
    }
#endif
    const typename Bytes::Loaded loaded = Bytes::load(block + 2);
    f(0, scale * Bytes::template vector<0>(loaded));
    f(1, scale * Bytes::template vector<1>(loaded));
    if constexpr (kWidth < 16) {
      f(2, scale * Bytes::template vector<2>(loaded));
      f(3, scale * Bytes::template vector<3>(loaded));
    }
    if constexpr (kWidth < 8) {
      f(4, scale * Bytes::template vector<4>(loaded));
      f(5, scale * Bytes::template vector<5>(loaded));
      f(6, scale * Bytes::template vector<6>(loaded));
      f(7, scale * Bytes::template vector<7>(loaded));
    }
  }
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // rows are whole blocks
};
struct EightBits {
  static constexpr int64_t kBlock = 34;
  static constexpr bool kTable = false;
  using Loaded = const char*;
  HM_INLINE static Loaded load(const char* p) { return p; }
  template <int i>
  HM_INLINE static vf vector(Loaded p) {
    return load_floats(p + i * kWidth);
  }
};
struct FourBits {
  static constexpr int64_t kBlock = 18;
  static constexpr bool kTable = true;  // sixteen numbers
  struct Loaded {
    __m128i halves[2];
  };
  HM_INLINE static __m128i less_8(__m128i v) {
    return _mm_sub_epi8(_mm_and_si128(v, _mm_set1_epi8(15)), _mm_set1_epi8(8));
  }
  HM_INLINE static Loaded load(const char* p) {
    const __m128i bytes = load_bytes(p);
    return {{less_8(bytes), less_8(_mm_srli_epi16(bytes, 4))}};
  }
  template <int i>
  HM_INLINE static vf vector(const Loaded& loaded) {
    constexpr int kVectors = 16 / kWidth;  // of a half
    return floats_of<i % kVectors>(loaded.halves[i / kVectors]);
  }
};

// Blocks of 256 with scales of their own for each run.
struct LongBlocks : NoScales {
  static constexpr int64_t kStep = 256;
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }
  // Sixteen signed bytes, times the numbers of `scales`.
  HM_INLINE static void scaled(__m128i bytes, const vf* scales, float* to) {
    store(to, floats_of<0>(bytes) * scales[0]);
    if constexpr (kWidth < 16) store(to + kWidth, floats_of<1>(bytes) * scales[1]);
    if constexpr (kWidth < 8) {
      store(to + 2 * kWidth, floats_of<2>(bytes) * scales[2]);
      store(to + 3 * kWidth, floats_of<3>(bytes) * scales[3]);
    }
  }
};

struct Quarters : LongBlocks {  // q4_k
  static constexpr int64_t kStepBytes = 144;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  HM_INLINE static uint32_t load_u32(const char* p) {
    uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
  }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    const uint32_t a = load_u32(block + 4), b = load_u32(block + 8), c = load_u32(block + 12), six = 0x3f3f3f3f,
                   four = 0x0f0f0f0f, two = 0x03030303;
    const __m128i packed =
        _mm_setr_epi32(static_cast<int>(a & six), static_cast<int>((c & four) | (a >> 6 & two) << 4),
                       static_cast<int>(b & six), static_cast<int>((c >> 4 & four) | (b >> 6 & two) << 4));
    const vf head = floats_of_halves(reinterpret_cast<const uint16_t*>(block));
    const float scale = head[0], minimum = head[1];
    vf scales[16 / kWidth];
    for (int i = 0; i < 16 / kWidth; ++i)
      scales[i] = choose(lanes() < 8 - i * static_cast<int>(kWidth), splat(scale), splat(minimum));
    alignas(64) float pairs[16];  // eight steps, eight minima
    scaled(packed, scales, pairs);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const char* bytes = block + 16 + 32 * i;
      const vf step = splat(pairs[2 * i]), least = splat(pairs[8 + 2 * i]), next_step = splat(pairs[2 * i + 1]),
               next_least = splat(pairs[9 + 2 * i]);
#if defined(__AVX512F__)
      const vf levels = __builtin_convertvector(lanes(), vf);
      const vf table = rounded(step * levels) - least, next = rounded(next_step * levels) - next_least;
      const __m512i first = widen(load_bytes(bytes)), second = widen(load_bytes(bytes + 16));
      f(4 * i, look_up(first, table));
      f(4 * i + 1, look_up(second, table));
      f(4 * i + 2, look_up(high_bits(first), next));
      f(4 * i + 3, look_up(high_bits(second), next));
#else
      constexpr int kVectors = 32 / kWidth;
      const __m128i low = _mm_set1_epi8(15), first = load_bytes(bytes), second = load_bytes(bytes + 16);
      const auto run = [&](int at, __m128i x, __m128i y, vf s, vf l) __attribute__((always_inline)) {
        const auto number = [&](vf q) __attribute__((always_inline)) { return rounded(s * q) - l; };
        f(at, number(floats_of<0>(x)));
        f(at + 1, number(floats_of<1>(x)));
        if constexpr (kWidth < 8) f(at + 2, number(floats_of<2>(x))), f(at + 3, number(floats_of<3>(x)));
        f(at + kVectors / 2, number(floats_of<0>(y)));
        f(at + kVectors / 2 + 1, number(floats_of<1>(y)));
        if constexpr (kWidth < 8)
          f(at + kVectors / 2 + 2, number(floats_of<2>(y))), f(at + kVectors / 2 + 3, number(floats_of<3>(y)));
      };
      run(2 * kVectors * i, _mm_and_si128(first, low), _mm_and_si128(second, low), step, least);
      run(2 * kVectors * i + kVectors, _mm_and_si128(_mm_srli_epi16(first, 4), low),
          _mm_and_si128(_mm_srli_epi16(second, 4), low), next_step, next_least);
#endif
    }
  }
};

struct SixBits : LongBlocks {  // q6_k
  static constexpr int64_t kStepBytes = 210;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    const float scale = floats_of_halves(reinterpret_cast<const uint16_t*>(block + 210) - kWidth)[kWidth - 1];
    vf scales[16 / kWidth];
    for (vf& v : scales) v = splat(scale);
    alignas(64) float steps[16];
    scaled(load_bytes(block + 192), scales, steps);
    const __m128i four = _mm_set1_epi8(15), two = _mm_set1_epi8(3), middle = _mm_set1_epi8(32);
    constexpr int kVectors = 16 / kWidth;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int upper = i / 8, quarter = i % 8 / 2, part = i % 2;
      const __m128i low = load_bytes(block + 64 * upper + quarter % 2 * 32 + 16 * part),
                    high = load_bytes(block + 128 + 32 * upper + 16 * part);
      const __m128i nibbles = _mm_and_si128(quarter < 2 ? low : _mm_srli_epi16(low, 4), four),
                    pairs = _mm_slli_epi16(_mm_and_si128(_mm_srli_epi16(high, 2 * quarter), two), 4);
      const __m128i bytes = _mm_sub_epi8(_mm_or_si128(nibbles, pairs), middle);
      const vf step = splat(steps[i]);
      f(kVectors * i, step * floats_of<0>(bytes));
      if constexpr (kWidth < 16) f(kVectors * i + 1, step * floats_of<1>(bytes));
      if constexpr (kWidth < 8) {
        f(kVectors * i + 2, step * floats_of<2>(bytes));
        f(kVectors * i + 3, step * floats_of<3>(bytes));
      }
    }
  }
};

// ---- few rows: weights are converted in registers

// kRows rows of A times kColumns rows of the weight.
template <typename W, int kRows, int kColumns>
HM_INLINE void typed_products(const float* a, int64_t a_row, const char* w, int64_t row_bytes, float* c, int64_t c_row,
                              int64_t depth) {
  vf sum[kRows][kColumns] = {};
  alignas(64) float scales[kColumns][kGroup];
  const int64_t whole = depth / W::kStep * W::kStep;
  int64_t k = 0;
  while (k < whole) {
    const int64_t group = W::kScales && whole - k > kGroup * W::kStep ? k + kGroup * W::kStep : whole;
    if constexpr (W::kScales)
      for (int j = 0; j < kColumns; ++j) W::scales(w + j * row_bytes, k, (group - k) / W::kStep, scales[j]);
    for (int64_t i = 0; k < group; k += W::kStep, ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        // the rows after these: a row is too short for the processor to notice its stream in time
        for (int64_t at = 0; at < W::kStepBytes; at += 64)
          _mm_prefetch(w + (j + kColumns) * row_bytes + W::at(k) + at, kRows > 2 ? _MM_HINT_T1 : _MM_HINT_T0);
        W::each(
            w + j * row_bytes, k, W::kScales ? scales[j][i] : 0, [&](int v, vf y) __attribute__((always_inline)) {
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r) sum[r][j] = fma(load(a + r * a_row + k + v * kWidth), y, sum[r][j]);
            });
      }
    }
  }
  if (k < depth) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const vf y = W::part(w + j * row_bytes, k, depth - k);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load_part(a + i * a_row + k, depth - k), y, sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    float* to = c + i * c_row;
    if constexpr (kColumns % 4 == 0) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += 4)
        _mm_storeu_ps(to + j, sums_of(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]));
    } else {
      static_assert(kColumns < 4);
      const __m128 sums = sums_of(sum[i][0], kColumns > 1 ? sum[i][kColumns > 1] : vf{},
                                  kColumns > 2 ? sum[i][kColumns - 1] : vf{}, vf{});
      for (int j = 0; j < kColumns; ++j) to[j] = sums[j];
    }
  }
}

// As many rows of A as leave registers for their sums with three columns. More rows of A, a multiple of 4 KiB apart as
// they often are, would also leave no room in a first-level cache for the weight.
constexpr int kTileRows = kWidth < 16 ? 3 : 8;

template <typename W, int kRows>
void typed_rows(const TypedContext& c, const float* a, const char* w, float* y, int64_t n) {
  const Product& p = c.product;
  constexpr int kColumns = kRows == 1 ? 8 : kRows <= 6 ? 4 : 3;
  int64_t j = 0;
  for (; j + kColumns <= n; j += kColumns)
    typed_products<W, kRows, kColumns>(a, p.k, w + j * c.row_bytes, c.row_bytes, y + j, p.n, p.k);
  for (; j < n; ++j) typed_products<W, kRows, 1>(a, p.k, w + j * c.row_bytes, c.row_bytes, y + j, p.n, p.k);
}

// m rows, from kRows down.
template <typename W, int kRows = kTileRows>
void typed_tile(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n) {
  if (m == kRows) return typed_rows<W, kRows>(c, a, w, y, n);
  if constexpr (kRows > 1) typed_tile<W, kRows - 1>(c, a, w, y, m, n);
}

// ---- more rows: rows of the weight are decoded once for a block of rows of A

template <typename W>
void decode_row(const char* row, float* to, int64_t depth) {
  alignas(64) float scales[kGroup];
  int64_t k = 0;
  for (int64_t i = 0; k + W::kStep <= depth; k += W::kStep, ++i) {
    if (W::kScales && i % kGroup == 0) {
      const int64_t blocks = (depth - k) / W::kStep;
      W::scales(row, k, blocks < kGroup ? blocks : kGroup, scales);
    }
    W::each(
        row, k, W::kScales ? scales[i % kGroup] : 0, [&](int v, vf y) __attribute__((always_inline)) {
          store(to + k + v * kWidth, y);
        });
  }
  if (k < depth) store_part(to + k, W::part(row, k, depth - k), depth - k);
}

// A block of C: rows of A times `n` rows of the weight. `panel`: room for c.panel decoded rows.
template <typename Row>
void by_panels(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n, float* panel,
               Row row) {
  const Product& p = c.product;
  constexpr int64_t kRows = kWidth < 16 ? 3 : 6;
  for (int64_t block = 0; block < m; block += kBlockRows) {
    const int64_t end = m - block < kBlockRows ? m : block + kBlockRows;
    for (int64_t j = 0; j < n; j += c.panel) {
      const int64_t columns = n - j < c.panel ? n - j : c.panel;
      for (int64_t i = 0; i < columns; ++i) row(w + (j + i) * c.row_bytes, panel + i * p.k);
      int64_t i = block;
      for (; i + kRows <= end; i += kRows)
        inner_rows<kRows, 4>(a + i * p.k, p.k, panel, p.k, y + i * p.n + j, p.n, columns, p.k, false);
      if (i < end) gemm_inner(end - i, columns, p.k, a + i * p.k, p.k, panel, p.k, y + i * p.n + j, p.n, false);
    }
  }
}

template <typename W>
void typed_block(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n, float* panel) {
  if (m > kDirectRows)
    return by_panels(c, a, w, y, m, n, panel,
                     [&](const char* from, float* to) { decode_row<W>(from, to, c.product.k); });
  const Product& p = c.product;
  const int64_t tiles = (m + kTileRows - 1) / kTileRows;
  constexpr int64_t kColumns = 24;  // whole tiles of any width; their rows of the weight stay in cache
  for (int64_t j = 0; j < n; j += kColumns)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t i = m * t / tiles, end = m * (t + 1) / tiles;
      typed_tile<W>(c, a + i * p.k, w + j * c.row_bytes, y + i * p.n + j, end - i, n - j < kColumns ? n - j : kColumns);
    }
}

}  // namespace

void typed_linear(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const TypedContext*>(context);
  const Product& p = c.product;
  const uint32_t row_part = part / c.column_parts, column_part = part % c.column_parts;
  const int64_t i = slice_begin(p.m, kRowGranule, c.row_parts, row_part),
                j = slice_begin(p.n, kTypedColumnGranule, c.column_parts, column_part);
  const int64_t rows = slice_begin(p.m, kRowGranule, c.row_parts, row_part + 1) - i,
                columns = slice_begin(p.n, kTypedColumnGranule, c.column_parts, column_part + 1) - j;
  const float* a = static_cast<const float*>(buffers[p.a]) + i * p.k;
  const char* w = static_cast<const char*>(buffers[p.b]) + j * c.row_bytes;
  float *y = static_cast<float*>(buffers[p.c]) + i * p.n + j,
        *panel = static_cast<float*>(buffers[p.c + 1]) + part * c.panel * p.k;
  switch (c.dtype) {
    case HX_BF16:
      typed_block<BFloats>(c, a, w, y, rows, columns, panel);
      break;
    case HX_F16:
      typed_block<Float16s>(c, a, w, y, rows, columns, panel);
      break;
    case HX_Q8_0:
      typed_block<Blocks<EightBits>>(c, a, w, y, rows, columns, panel);
      break;
    case HX_Q4_0:
      typed_block<Blocks<FourBits>>(c, a, w, y, rows, columns, panel);
      break;
    case HX_Q4_K:
      typed_block<Quarters>(c, a, w, y, rows, columns, panel);
      break;
    case HX_Q6_K:
      typed_block<SixBits>(c, a, w, y, rows, columns, panel);
      break;
    default:
      by_panels(c, a, w, y, rows, columns, panel, [&](const char* from, float* to) { c.decode(from, to, p.k); });
  }
  end_product(p, buffers, i, i + rows, j, j + columns);
}

}  // namespace harmonics::cpu::HM_ISA
