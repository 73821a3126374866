// Rows of a cache where they lie: their places, and products of a few queries with rows of every type of cache.
//
// Sums have the order of gemm.hpp: scores add whole vectors from element 0 on and then their lanes, values add a key
// after the other.
#pragma once

#include "../cached_attention.hpp"
#include "eight_bits.hpp"
#include "gemm.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kMostFewRows = 8, kScoreSums = 24, kValueSums = 24;  // rows together; vectors of sums in registers
#else
constexpr int kMostFewRows = 4, kScoreSums = 12, kValueSums = 8;
#endif

// ---- types of rows: `vector` is kWidth numbers from element at + more on, a step is kVectors of them

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
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // rows are whole blocks
};

inline int64_t cache_bytes(CacheType type, int64_t elements) {
  return type == CacheType::f32   ? elements * 4
         : type == CacheType::f16 ? elements * 2
                                  : elements / kEightBlock * kEightBytes;
}

// ---- places

// The keys or values of a batch item and a head.
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

  // Row `key`; n <= most rows from it on follow each other.
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
  const char* at_ = nullptr;  // of the head, in page 0
  const int32_t* table_ = nullptr;
  CacheType type_ = CacheType::f32;
  int64_t stride_ = 0, bytes_ = 0, page_ = 0, last_page_ = 0, page_bytes_ = 0;
};

// Prefetches the rows that are read next while others are multiplied: those of a head lie too far apart for the
// processor to see them coming.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const Rows& rows, int64_t from, int64_t to) : rows_(&rows), key_(from), end_(to) {}
  HM_INLINE void fetch(int64_t n) {
    for (; n > 0 && key_ < end_; --n, ++key_, --left_, at_ += rows_->stride()) {
      if (left_ == 0) at_ = rows_->run(key_, end_ - key_, left_);
      for (int64_t i = 0; i < rows_->bytes(); i += 64) __builtin_prefetch(at_ + i, 0, 2);
      __builtin_prefetch(at_ + rows_->bytes() - 1, 0, 2);
    }
  }

 private:
  const Rows* rows_ = nullptr;
  int64_t key_ = 0, end_ = 0, left_ = 0;
  const char* at_ = nullptr;
};

// ---- scores

// kRows queries times kColumns keys.
template <typename Cache, int kRows, int kColumns>
HM_INLINE void score_tile(const float* q, int64_t width, const char* k, int64_t stride, float* scores) {
  constexpr int64_t kStep = Cache::kVectors * kWidth;
  vf sum[kRows][kColumns] = {};
  int64_t d = 0;
  for (; d + kStep <= width; d += kStep) {
    typename Cache::Step steps[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) steps[j] = Cache::step(k + j * stride, d);
#pragma GCC unroll 8
    for (int v = 0; v < Cache::kVectors; ++v) {
      vf x[kRows];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) x[i] = load(q + i * width + d + v * kWidth);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        const vf y = Cache::vector(k + j * stride, d, v * kWidth, steps[j]);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) sum[i][j] = fma(x[i], y, sum[i][j]);
      }
    }
  }
  if (d < width) {
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      const vf y = Cache::part(k + j * stride, d, width - d);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = fma(load_part(q + i * width + d, width - d), y, sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    float* const to = scores + i * kCacheBlock;
    if constexpr (kColumns == 4) {
      _mm_storeu_ps(to, sums_of(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
    } else {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) to[j] = _mm_cvtss_f32(sums_of(sum[i][j], vf{}, vf{}, vf{}));
    }
  }
}

template <typename Cache, int kRows>
HM_INLINE void score_rows(const float* q, int64_t width, const char* k, int64_t stride, int64_t keys, float* scores,
                          Ahead* ahead) {
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    if (ahead) ahead->fetch(4);
    if constexpr (kRows * 4 > kScoreSums) {
      score_tile<Cache, kRows, 2>(q, width, k + j * stride, stride, scores + j);
      score_tile<Cache, kRows, 2>(q, width, k + (j + 2) * stride, stride, scores + j + 2);
    } else {
      score_tile<Cache, kRows, 4>(q, width, k + j * stride, stride, scores + j);
    }
  }
  for (; j < keys; ++j) {
    if (ahead) ahead->fetch(1);
    score_tile<Cache, kRows, 1>(q, width, k + j * stride, stride, scores + j);
  }
}

// scores[query][key] of a few queries.
template <typename Cache>
[[gnu::noinline]] void few_scores(int64_t queries, int64_t keys, int64_t width, const float* q, const char* k,
                                  int64_t stride, float* scores, Ahead& ahead) {
  constexpr int64_t kColumns = 32;  // keys that stay in cache while the queries are read
  for (int64_t j = 0; j < keys; j += kColumns) {
    const int64_t n = keys - j < kColumns ? keys - j : kColumns;
    int64_t i = 0;
    const auto rows = [&]<int kRows>() __attribute__((always_inline)) {
      score_rows<Cache, kRows>(q + i * width, width, k + j * stride, stride, n, scores + i * kCacheBlock + j,
                               i == 0 ? &ahead : nullptr);
      i += kRows;
    };
    if constexpr (kMostFewRows == 8)
      while (i + 8 <= queries) rows.template operator()<8>();
    while (i + 4 <= queries) rows.template operator()<4>();
    if (i + 3 <= queries) rows.template operator()<3>();
    if (i + 2 <= queries) rows.template operator()<2>();
    if (i < queries) rows.template operator()<1>();
  }
}

// ---- values

// kRows queries times kVectors vectors of the values from `column` on; the last has `lanes_left` of them.
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

// out[query] += sum of weights[query][key] values[key], of a few queries; without `add` it is set.
template <typename Cache>
[[gnu::noinline]] void few_values(int64_t queries, int64_t keys, int64_t width, const float* weights, const char* v,
                                  int64_t stride, bool add, float* out, Ahead& ahead) {
  int64_t i = 0;
  const auto rows = [&]<int kRows>() __attribute__((always_inline)) {
    value_rows<Cache, kRows>(weights + i * kCacheBlock, v, stride, keys, width, add, out + i * width,
                             i == 0 ? &ahead : nullptr);
    i += kRows;
  };
  if constexpr (kMostFewRows == 8)
    while (i + 8 <= queries) rows.template operator()<8>();
  while (i + 4 <= queries) rows.template operator()<4>();
  if (i + 3 <= queries) rows.template operator()<3>();
  if (i + 2 <= queries) rows.template operator()<2>();
  if (i < queries) rows.template operator()<1>();
}

// Calls f with the type of the rows.
template <typename F>
HM_INLINE void with_type(CacheType type, F f) {
  if (type == CacheType::f16)
    f(HalfRows{});
  else if (type == CacheType::q8_0)
    f(EightBitRows{});
  else
    f(FloatRows{});
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
