// Cache rows read in place: their addresses, and products of a few queries with rows of every cache type.
//
// The order of summation is that of gemm.hpp: scores accumulate whole vectors from element 0 and then reduce the lanes;
// values accumulate key by key.
#pragma once

#include "../cached_attention.hpp"
#include "eight_bits.hpp"
#include "gemm.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kMostFewRows = 8, kValueSums = 24;  // rows multiplied together; accumulator registers
#else
constexpr int kMostFewRows = 4, kValueSums = 8;
#endif

// ---- row types: vector() returns kWidth numbers from element at + more; a Step covers kVectors vectors

struct FloatRows {
  static constexpr int kVectors = 1;
  struct Step {};
  HM_INLINE static Step step(const char*, int64_t) { return {}; }
  HM_INLINE static vf vector(const char* row, int64_t at, int64_t more, const Step&) {
    return load(reinterpret_cast<const float*>(row) + at + more);
  }
  HM_INLINE static vf part(const char* row, int64_t at, int64_t n) {
    return load_part(reinterpret_cast<const float*>(row) + at, n);
  }
};
struct HalfRows {
  static constexpr int kVectors = 1;
  struct Step {};
  HM_INLINE static Step step(const char*, int64_t) { return {}; }
  HM_INLINE static vf vector(const char* row, int64_t at, int64_t more, const Step&) {
    return load_f16(reinterpret_cast<const uint16_t*>(row) + at + more);
  }
  HM_INLINE static vf part(const char* row, int64_t at, int64_t n) {
    return load_f16_part(reinterpret_cast<const uint16_t*>(row) + at, n);
  }
};
struct BFloatRows {
  static constexpr int kVectors = 1;
  struct Step {};
  HM_INLINE static Step step(const char*, int64_t) { return {}; }
  HM_INLINE static vf vector(const char* row, int64_t at, int64_t more, const Step&) {
    return load_bf16(reinterpret_cast<const uint16_t*>(row) + at + more);
  }
  HM_INLINE static vf part(const char* row, int64_t at, int64_t n) {
    return load_bf16_part(reinterpret_cast<const uint16_t*>(row) + at, n);
  }
};
struct EightBitRows {
  static constexpr int kVectors = kEightBlock / kWidth;
  struct Step {
    vf scale;
  };
  HM_INLINE static Step step(const char* row, int64_t at) {
    uint16_t half;
    std::memcpy(&half, row + at / kEightBlock * kEightBytes, sizeof half);
#if defined(__AVX512F__)
    return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(half)))};
#elif defined(__AVX2__)
    return {_mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(half)))};
#else
    return {splat(load_f16_part(&half, 1)[0])};
#endif
  }
  HM_INLINE static vf vector(const char* row, int64_t at, int64_t more, const Step& step) {
    return step.scale * floats_of_bytes(row + at / kEightBlock * kEightBytes + 2 + at % kEightBlock + more);
  }
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // unused: rows are whole blocks
};

inline int64_t cache_bytes(CacheType type, int64_t elements) {
  return type == CacheType::f32    ? elements * 4
         : type == CacheType::q8_0 ? elements / kEightBlock * kEightBytes
                                   : elements * 2;
}

// ---- addresses

// The keys or values of one head of a batch item.
class Rows {
 public:
  Rows() = default;
  Rows(const Pages& pages, void* const* buffers, const void* cache, CacheType type, const HeadRows& at, int64_t batch,
       int64_t head, int64_t width)
      : type_(type), stride_(cache_bytes(type, at.row)), bytes_(cache_bytes(type, width)) {
    int64_t offset = head * at.head;
    if (pages.given()) {
      table_ = static_cast<const int32_t*>(buffers[pages.buffer]) + batch * pages.entries;
      page_ = pages.rows;
      last_page_ = pages.pool - 1;
      page_bytes_ = cache_bytes(type, at.batch);
    } else {
      offset += batch * at.batch;
    }
    at_ = static_cast<const char*>(cache) + cache_bytes(type, offset);
  }

  CacheType type() const { return type_; }
  int64_t stride() const { return stride_; }  // bytes
  int64_t bytes() const { return bytes_; }    // of a row

  // Returns the address of row `key`, and sets n <= most to the number of rows from there that are equally spaced.
  const char* run(int64_t key, int64_t most, int64_t& n) const {
    n = most;
    if (!table_) return at_ + key * stride_;
    const int64_t page = key / page_, row = key - page * page_, named = table_[page];
    if (page_ - row < n) n = page_ - row;
    return at_ + (named < 0 ? 0 : named > last_page_ ? last_page_ : named) * page_bytes_ + row * stride_;
  }
  // Calls run(rows, first, n) for keys [from, to), in order.
  template <typename Run>
  HM_INLINE void each(int64_t from, int64_t to, Run f) const {
    for (int64_t key = from, n = 0; key < to; key += n) {
      const char* const rows = run(key, to - key, n);
      f(rows, key, n);
    }
  }

 private:
  const char* at_ = nullptr;  // row 0 of the head, in page 0
  const int32_t* table_ = nullptr;
  CacheType type_ = CacheType::f32;
  int64_t stride_ = 0, bytes_ = 0, page_ = 0, last_page_ = 0, page_bytes_ = 0;
};

// Prefetches the next rows during the products of others. The rows of a head are too far apart for the hardware
// prefetcher.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const Rows& rows, int64_t from, int64_t to) : rows_(&rows), key_(from), end_(to) {}
  HM_INLINE void fetch(int64_t n) {
    for (; n > 0 && key_ < end_; --n, ++key_, --left_, at_ += rows_->stride()) {
      if (left_ == 0) at_ = rows_->run(key_, end_ - key_, left_);
      for (int64_t i = 0; i < rows_->bytes(); i += 64) __builtin_prefetch(at_ + i, 0, 2);
      if (rows_->bytes() % 64) __builtin_prefetch(at_ + rows_->bytes() - 1, 0, 2);
    }
  }

 private:
  const Rows* rows_ = nullptr;
  int64_t key_ = 0, end_ = 0, left_ = 0;
  const char* at_ = nullptr;
};

// ---- scores

#if defined(__AVX512F__)
// Returns the sums of the lanes of v[i] in lane i, in the order of summation of sums_of.
HM_INLINE vf sums_of_sixteen(const vf* v) {
  const auto fold = [&](int i) __attribute__((always_inline)) {
    return _mm512_shuffle_f32x4(v[i], v[i + 4], 0x44) + _mm512_shuffle_f32x4(v[i], v[i + 4], 0xee);
  };
  const auto pairs = [](__m512 a, __m512 b) __attribute__((always_inline)) {
    return _mm512_shuffle_ps(a, b, 0x88) + _mm512_shuffle_ps(a, b, 0xdd);
  };
  const auto eight = [&](int i) __attribute__((always_inline)) {
    return pairs(pairs(fold(i), fold(i + 1)), pairs(fold(i + 2), fold(i + 3)));
  };
  const __m512 low = eight(0), high = eight(8);
  return _mm512_shuffle_f32x4(low, high, 0x88) + _mm512_shuffle_f32x4(low, high, 0xdd);
}
#endif

// Reduces the lanes of sum[query][key] and stores the results.
template <int kRows, int kColumns>
HM_INLINE void store_scores(const vf (&sum)[kRows][kColumns], float* scores) {
#if defined(__AVX512F__)
  if constexpr (kRows * kColumns == 16) {
    const vf all = sums_of_sixteen(&sum[0][0]);
    if constexpr (kColumns == 16) {
      store(scores, all);
    } else if constexpr (kColumns == 8) {
      _mm256_storeu_ps(scores, _mm512_castps512_ps256(all));
      _mm256_storeu_ps(scores + kCacheBlock, _mm512_extractf32x8_ps(all, 1));
    } else {
      const __m128 four[4] = {_mm512_castps512_ps128(all), _mm512_extractf32x4_ps(all, 1),
                              _mm512_extractf32x4_ps(all, 2), _mm512_extractf32x4_ps(all, 3)};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        if constexpr (kColumns == 4) {
          _mm_storeu_ps(scores + i * kCacheBlock, four[i]);
        } else {
          _mm_storel_pi(reinterpret_cast<__m64*>(scores + 2 * i * kCacheBlock), four[i]);
          _mm_storeh_pi(reinterpret_cast<__m64*>(scores + (2 * i + 1) * kCacheBlock), four[i]);
        }
    }
    return;
  }
#endif
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    float* const to = scores + i * kCacheBlock;
    if constexpr (kColumns % 4 == 0) {
      for (int j = 0; j < kColumns; j += 4)
        _mm_storeu_ps(to + j, sums_of(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]));
    } else if constexpr (kColumns == 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(to), sums_of(sum[i][0], sum[i][1], vf{}, vf{}));
    } else {
      to[0] = _mm_cvtss_f32(sums_of(sum[i][0], vf{}, vf{}, vf{}));
    }
  }
}

// kRows queries times kColumns keys.
template <typename Cache, int kRows, int kColumns>
HM_INLINE void score_tile(const float* q, int64_t width, const char* k, int64_t stride, float* scores) {
  constexpr int64_t kStep = Cache::kVectors * kWidth;
  vf sum[kRows][kColumns] = {};
  int64_t d = 0;
  for (; d + kStep <= width; d += kStep) {
    typename Cache::Step steps[kColumns];
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) steps[j] = Cache::step(k + j * stride, d);
#pragma GCC unroll 8
    for (int v = 0; v < Cache::kVectors; ++v) {
      vf x[kRows];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) x[i] = load(q + i * width + d + v * kWidth);
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        const vf y = Cache::vector(k + j * stride, d, v * kWidth, steps[j]);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) sum[i][j] = fma(x[i], y, sum[i][j]);
      }
    }
  }
  if (d < width) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      const vf y = Cache::part(k + j * stride, d, width - d);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load_part(q + i * width + d, width - d), y, sum[i][j]);
    }
  }
  store_scores<kRows, kColumns>(sum, scores);
}

// Keys per tile of `rows` queries, so that the accumulators fit the registers.
template <typename Cache>
constexpr int columns_of(int rows) {
#if defined(__AVX512F__)
  const int most = 16 / rows;
  return rows == 3 ? 4 : Cache::kVectors > 1 && most > 8 ? 8 : most;  // scales occupy registers too
#else
  return Cache::kVectors > 1 || rows > 3 ? 2 : 4;
#endif
}

template <typename Cache, int kRows>
HM_INLINE void score_rows(const float* q, int64_t width, const char* k, int64_t stride, int64_t keys, float* scores,
                          Ahead* ahead) {
  int64_t j = 0;
  const auto tiles = [&]<int kColumns>() __attribute__((always_inline)) {
    for (; j + kColumns <= keys; j += kColumns) {
      if (ahead) ahead->fetch(kColumns);
      score_tile<Cache, kRows, kColumns>(q, width, k + j * stride, stride, scores + j);
    }
  };
  constexpr int kColumns = columns_of<Cache>(kRows);
  tiles.template operator()<kColumns>();
  if constexpr (kColumns > 4) tiles.template operator()<4>();
  tiles.template operator()<1>();
}

// Calls rows<kRows>(first) for blocks of at most kMostFewRows of `count` rows.
template <typename Rows>
HM_INLINE void in_row_blocks(int64_t count, const Rows& rows) {
  int64_t i = 0;
  if constexpr (kMostFewRows == 8)
    for (; i + 8 <= count; i += 8) rows.template operator()<8>(i);
  for (; i + 4 <= count; i += 4) rows.template operator()<4>(i);
  switch (count - i) {
    case 3:
      return rows.template operator()<3>(i);
    case 2:
      return rows.template operator()<2>(i);
    case 1:
      return rows.template operator()<1>(i);
    default:
      return;
  }
}

// Computes scores[query][key] of a few queries.
template <typename Cache>
[[gnu::noinline]] void few_scores(int64_t queries, int64_t keys, int64_t width, const float* q, const char* k,
                                  int64_t stride, float* scores, Ahead& ahead) {
  constexpr int64_t kColumns = 32;  // keys that stay in cache while the queries are read
  for (int64_t j = 0; j < keys; j += kColumns) {
    const int64_t n = keys - j < kColumns ? keys - j : kColumns;
    const auto rows = [&]<int kRows>(int64_t i) __attribute__((always_inline)) {
      score_rows<Cache, kRows>(q + i * width, width, k + j * stride, stride, n, scores + i * kCacheBlock + j,
                               i == 0 ? &ahead : nullptr);
    };
    in_row_blocks(queries, rows);
  }
}

// ---- values

// kRows queries times kVectors vectors of values from `column`. Not kFull: a single vector of `lanes_left` lanes.
template <typename Cache, int kRows, int kVectors, bool kFull>
HM_INLINE void value_tile(const float* weights, const char* v, int64_t stride, int64_t column, int64_t keys, bool add,
                          int64_t lanes_left, float* out, int64_t out_row, Ahead* ahead) {
  constexpr int kTogether = kVectors < Cache::kVectors ? kVectors : Cache::kVectors;
  vf sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int u = 0; u < kVectors; ++u) {
      const float* const from = out + i * out_row + column + u * kWidth;
      sum[i][u] = !add ? vf{} : kFull ? load(from) : load_part(from, lanes_left);
    }
  for (int64_t key = 0; key < keys; ++key) {
    const char* const row = v + key * stride;
    if (ahead) ahead->fetch(1);
    vf y[kVectors];
    if constexpr (kFull) {
#pragma GCC unroll 8
      for (int g = 0; g < kVectors; g += kTogether) {
        const typename Cache::Step step = Cache::step(row, column + g * kWidth);
#pragma GCC unroll 8
        for (int u = g; u < g + kTogether; ++u) y[u] = Cache::vector(row, column + g * kWidth, (u - g) * kWidth, step);
      }
    } else {
      y[0] = Cache::part(row, column, lanes_left);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(weights[i * kCacheBlock + key]);
#pragma GCC unroll 8
      for (int u = 0; u < kVectors; ++u) sum[i][u] = fma(x, y[u], sum[i][u]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int u = 0; u < kVectors; ++u) {
      float* const to = out + i * out_row + column + u * kWidth;
      kFull ? store(to, sum[i][u]) : store_part(to, sum[i][u], lanes_left);
    }
}

template <typename Cache, int kRows>
HM_INLINE void value_rows(const float* weights, const char* v, int64_t stride, int64_t keys, int64_t width, bool add,
                          float* out, Ahead* ahead) {
  constexpr int kMost = kValueSums / kRows, kVectors = kMost >= 8 ? 8 : kMost >= 4 ? 4 : 2;
  int64_t j = 0;
  const auto tiles = [&]<int kSome>() __attribute__((always_inline)) {
    for (; j + kSome * kWidth <= width; j += kSome * kWidth, ahead = nullptr)
      value_tile<Cache, kRows, kSome, true>(weights, v, stride, j, keys, add, kWidth, out, width, ahead);
  };
  tiles.template operator()<kVectors>();
  if constexpr (kVectors > 4) tiles.template operator()<4>();
  if constexpr (kVectors > 2) tiles.template operator()<2>();
  tiles.template operator()<1>();
  if (j < width) value_tile<Cache, kRows, 1, false>(weights, v, stride, j, keys, add, width - j, out, width, ahead);
}

// out[query] += sum of weights[query][key] * values[key], for a few queries; without `add`, stores the sum.
template <typename Cache>
[[gnu::noinline]] void few_values(int64_t queries, int64_t keys, int64_t width, const float* weights, const char* v,
                                  int64_t stride, bool add, float* out, Ahead& ahead) {
  const auto rows = [&]<int kRows>(int64_t i) __attribute__((always_inline)) {
    value_rows<Cache, kRows>(weights + i * kCacheBlock, v, stride, keys, width, add, out + i * width,
                             i == 0 ? &ahead : nullptr);
  };
  in_row_blocks(queries, rows);
}

// Calls f with an object of the row type.
template <typename F>
HM_INLINE void with_type(CacheType type, F f) {
  if (type == CacheType::f16)
    f(HalfRows{});
  else if (type == CacheType::bf16)
    f(BFloatRows{});
  else if (type == CacheType::q8_0)
    f(EightBitRows{});
  else
    f(FloatRows{});
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
