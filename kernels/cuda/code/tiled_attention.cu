// Plain attention and its gradient by tiles of queries and kRun keys, without storing the score matrix (FlashAttention,
// arXiv 2205.14135). Heads of up to 64 numbers. Sums are over keys or queries in order.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kRun = kAttentionKeys;  // keys per tile; in the gradient also queries per tile
constexpr uint32_t kAcross = 16;           // threads along keys, or along the numbers of a head
constexpr uint32_t kScores = kRun + 4;     // leading dimension of scores, 16-byte aligned

struct alignas(16) Four {
  float x[4];
};
template <uint32_t kWidth>
struct alignas(4 * kWidth / kAcross) Piece {  // a thread's numbers of a head
  float x[kWidth / kAcross];
};

// Reduces over the threads of a row of scores.
template <typename Join>
__device__ inline float join_row(float v) {
  for (uint32_t apart = kAcross / 2; apart > 0; apart /= 2) v = Join::join(v, __shfl_xor_sync(kAllLanes, v, apart));
  return v;
}

// Loads rows [first, first + kRows) of a matrix; 0 out of range.
template <uint32_t kRows, uint32_t kWidth>
__device__ inline void load(float (*to)[kWidth + 4], const float* from, uint32_t first, uint32_t rows, uint32_t stride,
                            uint32_t width) {
  for (uint32_t n = 0; n < kRows * kWidth / kThreads; ++n) {
    const uint32_t i = threadIdx.x + n * kThreads, row = i / kWidth, column = i % kWidth;
    to[row][column] =
        first + row < rows && column < width ? from[static_cast<int64_t>(first + row) * stride + column] : 0.0f;
  }
}

// sums[i][j] += inner product of row `row + i * kAcross` of a and row `column + j * kAcross` of b.
template <uint32_t kRows, uint32_t kColumns, uint32_t kWidth>
__device__ inline void add_products(float (&sums)[kRows][kColumns], const float (*a)[kWidth + 4],
                                    const float (*b)[kWidth + 4], uint32_t row, uint32_t column) {
  for (uint32_t d = 0; d < kWidth; d += 4) {
    Four x[kRows], y[kColumns];
    for (uint32_t i = 0; i < kRows; ++i) x[i] = *reinterpret_cast<const Four*>(&a[row + i * kAcross][d]);
    for (uint32_t j = 0; j < kColumns; ++j) y[j] = *reinterpret_cast<const Four*>(&b[column + j * kAcross][d]);
    for (uint32_t n = 0; n < 4; ++n)
      for (uint32_t i = 0; i < kRows; ++i)
        for (uint32_t j = 0; j < kColumns; ++j) sums[i][j] += x[i].x[n] * y[j].x[n];
  }
}
// sums[i] += scores in row `row + i * kAcross` times this thread's numbers of the rows of b.
template <uint32_t kRows, uint32_t kWidth>
__device__ inline void add_rows(Piece<kWidth> (&sums)[kRows], const float (*scores)[kScores],
                                const float (*b)[kWidth + 4], uint32_t row, uint32_t column) {
  constexpr uint32_t kEach = kWidth / kAcross;
  for (uint32_t k = 0; k < kRun; k += 4) {
    Four x[kRows];
    for (uint32_t i = 0; i < kRows; ++i) x[i] = *reinterpret_cast<const Four*>(&scores[row + i * kAcross][k]);
    for (uint32_t n = 0; n < 4; ++n) {
      const auto y = *reinterpret_cast<const Piece<kWidth>*>(&b[k + n][column * kEach]);
      for (uint32_t i = 0; i < kRows; ++i)
        for (uint32_t c = 0; c < kEach; ++c) sums[i].x[c] += x[i].x[n] * y.x[c];
    }
  }
}

// Offsets of the rows of a head.
struct Head {
  int64_t q, k, v, out, row;
  __device__ Head(const AttendParameters& p, uint32_t batch, uint32_t head) {
    const auto wide = [](uint32_t n) { return static_cast<int64_t>(n); };
    const uint32_t group = head / (p.heads / p.shared);
    q = wide(batch) * p.heads * p.queries * p.width + wide(head) * p.q_head;
    out = wide(batch) * p.heads * p.queries * p.values + wide(head) * p.out_head;
    k = wide(batch) * p.shared * p.keys * p.width + wide(group) * p.k_head;
    v = wide(batch) * p.shared * p.keys * p.values + wide(group) * p.v_head;
    row = (wide(batch) * p.heads + head) * p.queries;
  }
};
// Returns the number of keys visible to a query; these are the first keys.
__device__ inline uint32_t seen_keys(const AttendParameters& p, uint32_t query) {
  if (query >= p.queries) return 0;
  if (!p.causal) return p.keys;
  const uint32_t end = p.keys + query + 1;  // less the number of queries
  return end <= p.queries ? 0 : end - p.queries < p.keys ? end - p.queries : p.keys;
}

// Online softmax of a row: replaces the products of a tile by exp(score - largest). Returns the factor for the earlier
// sums. `first`: this thread's first key.
template <uint32_t kKeys>
__device__ inline float add_to_softmax(float (&s)[kKeys], uint32_t first, uint32_t seen, float scale, float& largest,
                                       float& total) {
  float most = -infinity(), added = 0;
  for (uint32_t j = 0; j < kKeys; ++j) {
    s[j] = first + j * kAcross < seen ? s[j] * scale : -infinity();
    most = Largest::join(most, s[j]);
  }
  most = Largest::join(largest, join_row<Largest>(most));
  const float shift = most == -infinity() ? 0.0f : most, less = expf(largest - shift);
  for (uint32_t j = 0; j < kKeys; ++j) {
    s[j] = expf(s[j] - shift);
    added += s[j];
  }
  largest = most;
  total = total * less + join_row<Sum>(added);
  return less;
}

// One block per kAttentionQueries queries of a head.
template <uint32_t kWidth>
__global__ void __launch_bounds__(kThreads)
    attend_tiles(const float* q, const float* k, const float* v, float* out, float* lse, AttendParameters p) {
  constexpr uint32_t kRows = kAttentionQueries, kRowsEach = kRows / kAcross, kKeysEach = kRun / kAcross;
  alignas(16) __shared__ float queries[kRows][kWidth + 4], tile[kRun][kWidth + 4], scores[kRows][kScores];
  const uint32_t tiles = (p.queries + kRows - 1) / kRows, first = (tiles - 1 - blockIdx.x % tiles) * kRows;
  const Head head(p, blockIdx.x / tiles / p.heads, blockIdx.x / tiles % p.heads);
  const uint32_t row = threadIdx.x / kAcross, column = threadIdx.x % kAcross;
  load<kRows, kWidth>(queries, q + head.q, first, p.queries, p.q_row, p.width);
  uint32_t seen[kRowsEach];
  float largest[kRowsEach], total[kRowsEach];
  Piece<kWidth> sums[kRowsEach] = {};
  for (uint32_t i = 0; i < kRowsEach; ++i) {
    seen[i] = seen_keys(p, first + row + i * kAcross);
    largest[i] = -infinity(), total[i] = 0;
  }
  const uint32_t last = first + kRows < p.queries ? first + kRows - 1 : p.queries - 1, end = seen_keys(p, last);
  for (uint32_t key = 0; key < end; key += kRun) {
    load<kRun, kWidth>(tile, k + head.k, key, p.keys, p.k_row, p.width);
    __syncthreads();
    float s[kRowsEach][kKeysEach] = {};
    add_products<kRowsEach, kKeysEach, kWidth>(s, queries, tile, row, column);
    for (uint32_t i = 0; i < kRowsEach; ++i) {
      const float less = add_to_softmax(s[i], key + column, seen[i], p.scale, largest[i], total[i]);
      for (uint32_t j = 0; j < kKeysEach; ++j) scores[row + i * kAcross][column + j * kAcross] = s[i][j];
      for (float& x : sums[i].x) x *= less;
    }
    __syncthreads();
    load<kRun, kWidth>(tile, v + head.v, key, p.keys, p.v_row, p.values);
    __syncthreads();
    add_rows<kRowsEach, kWidth>(sums, scores, tile, row, column);
    __syncthreads();
  }
  constexpr uint32_t kEach = kWidth / kAcross;
  for (uint32_t i = 0; i < kRowsEach; ++i) {
    const uint32_t query = first + row + i * kAcross;
    if (query >= p.queries) continue;
    const float share = total[i] == 0 ? 0 : 1 / total[i];
    float* to = out + head.out + static_cast<int64_t>(query) * p.out_row;
    for (uint32_t c = 0; c < kEach; ++c)
      if (column * kEach + c < p.values) to[column * kEach + c] = sums[i].x[c] * share;
    if (column == 0) lse[head.row + query] = total[i] == 0 ? -infinity() : logf(total[i]) + largest[i];
  }
}

// Softmax statistics of each query: p = exp(score - shift) * share; the gradient of a score is p * (dp - own) * by.
// They are computed again, since the lse of the forward pass is too inaccurate for large scores.
struct Softmax {
  float *own, *shift, *share;
  __device__ Softmax(float* all, const AttendParameters& p) {
    const int64_t rows = static_cast<int64_t>(p.batch) * p.heads * p.queries;
    own = all, shift = all + rows, share = all + 2 * rows;
  }
};
// The number of visible keys, and the factor of gradients: 0 for a single key, whose probability is 1 for any score.
struct Seen {
  uint32_t keys;
  float by;
  __device__ Seen(const AttendParameters& p, uint32_t query)
      : keys(seen_keys(p, query)), by(keys == 1 ? 0.0f : p.scale) {}
};

// One block per kRun queries of a head: softmax statistics and dq.
template <uint32_t kWidth>
__global__ void __launch_bounds__(kThreads)
    attend_tiles_queries(const float* q, const float* k, const float* v, const float* out, const float* dout, float* dq,
                         float* statistics, AttendParameters p) {
  constexpr uint32_t kEach = kRun / kAcross, kPiece = kWidth / kAcross;
  alignas(16) __shared__ float queries[kRun][kWidth + 4], given[kRun][kWidth + 4], keys[kRun][kWidth + 4],
      values[kRun][kWidth + 4], scores[kRun][kScores];
  const uint32_t tiles = (p.queries + kRun - 1) / kRun, first = (tiles - 1 - blockIdx.x % tiles) * kRun;
  const Head head(p, blockIdx.x / tiles / p.heads, blockIdx.x / tiles % p.heads);
  const uint32_t row = threadIdx.x / kAcross, column = threadIdx.x % kAcross;
  load<kRun, kWidth>(queries, q + head.q, first, p.queries, p.q_row, p.width);
  load<kRun, kWidth>(given, dout + head.out, first, p.queries, p.out_row, p.values);
  load<kRun, kWidth>(values, out + head.out, first, p.queries, p.out_row, p.values);
  __syncthreads();
  float largest[kEach], total[kEach], own[kEach], by[kEach];
  uint32_t seen[kEach];
  Piece<kWidth> sums[kEach] = {};
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t r = row + i * kAcross;
    float sum = 0;
    for (uint32_t c = 0; c < kPiece; ++c) sum += given[r][column * kPiece + c] * values[r][column * kPiece + c];
    const Seen of(p, first + r);
    seen[i] = of.keys, by[i] = of.by, own[i] = join_row<Sum>(sum), largest[i] = -infinity(), total[i] = 0;
  }
  const uint32_t last = first + kRun < p.queries ? first + kRun - 1 : p.queries - 1, end = seen_keys(p, last);
  for (uint32_t key = 0; key < end; key += kRun) {
    __syncthreads();
    load<kRun, kWidth>(keys, k + head.k, key, p.keys, p.k_row, p.width);
    __syncthreads();
    float s[kEach][kEach] = {};
    add_products<kEach, kEach, kWidth>(s, queries, keys, row, column);
    for (uint32_t i = 0; i < kEach; ++i) add_to_softmax(s[i], key + column, seen[i], p.scale, largest[i], total[i]);
  }
  const Softmax all(statistics, p);
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t query = first + row + i * kAcross;
    largest[i] = total[i] == 0 ? 0 : largest[i], total[i] = total[i] == 0 ? 0 : 1 / total[i];
    if (column != 0 || query >= p.queries) continue;
    all.own[head.row + query] = own[i], all.shift[head.row + query] = largest[i],
                       all.share[head.row + query] = total[i];
  }
  __syncthreads();
  for (uint32_t key = 0; key < end; key += kRun) {
    load<kRun, kWidth>(keys, k + head.k, key, p.keys, p.k_row, p.width);
    load<kRun, kWidth>(values, v + head.v, key, p.keys, p.v_row, p.values);
    __syncthreads();
    float s[kEach][kEach] = {}, dp[kEach][kEach] = {};
    add_products<kEach, kEach, kWidth>(s, queries, keys, row, column);
    add_products<kEach, kEach, kWidth>(dp, given, values, row, column);
    for (uint32_t i = 0; i < kEach; ++i)
      for (uint32_t j = 0; j < kEach; ++j) {
        const bool sees = key + column + j * kAcross < seen[i];
        scores[row + i * kAcross][column + j * kAcross] =
            sees ? expf(s[i][j] * p.scale - largest[i]) * total[i] * (dp[i][j] - own[i]) * by[i] : 0.0f;
      }
    __syncthreads();
    add_rows<kEach, kWidth>(sums, scores, keys, row, column);
    __syncthreads();
  }
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t query = first + row + i * kAcross;
    if (query >= p.queries) continue;
    float* to = dq + head.q + static_cast<int64_t>(query) * p.q_row;
    for (uint32_t c = 0; c < kPiece; ++c)
      if (column * kPiece + c < p.width) to[column * kPiece + c] = sums[i].x[c];
  }
}

// One block per kRun keys of a shared head: dk and dv, from the queries of all heads that share it.
template <uint32_t kWidth>
__global__ void __launch_bounds__(kThreads)
    attend_tiles_keys(const float* q, const float* k, const float* v, const float* dout, float* statistics, float* dk,
                      float* dv, AttendParameters p) {
  constexpr uint32_t kEach = kRun / kAcross, kPiece = kWidth / kAcross;
  // Scores have a row per key.
  alignas(16) __shared__ float queries[kRun][kWidth + 4], given[kRun][kWidth + 4], keys[kRun][kWidth + 4],
      values[kRun][kWidth + 4], probabilities[kRun][kScores], gradients[kRun][kScores];
  const uint32_t tiles = (p.keys + kRun - 1) / kRun, first = blockIdx.x % tiles * kRun, group = p.heads / p.shared;
  const uint32_t batch = blockIdx.x / tiles / p.shared, shared = blockIdx.x / tiles % p.shared;
  const uint32_t row = threadIdx.x / kAcross, column = threadIdx.x % kAcross;
  const Head any(p, batch, shared * group);
  load<kRun, kWidth>(keys, k + any.k, first, p.keys, p.k_row, p.width);
  load<kRun, kWidth>(values, v + any.v, first, p.keys, p.v_row, p.values);
  const Softmax all(statistics, p);
  Piece<kWidth> of_key[kEach] = {}, of_value[kEach] = {};
  for (uint32_t h = shared * group; h < (shared + 1) * group; ++h) {
    const Head head(p, batch, h);
    for (uint32_t start = 0; start < p.queries; start += kRun) {
      const uint32_t last = start + kRun < p.queries ? start + kRun - 1 : p.queries - 1;
      if (seen_keys(p, last) <= first) continue;
      load<kRun, kWidth>(queries, q + head.q, start, p.queries, p.q_row, p.width);
      load<kRun, kWidth>(given, dout + head.out, start, p.queries, p.out_row, p.values);
      __syncthreads();
      float s[kEach][kEach] = {}, dp[kEach][kEach] = {};  // of queries and keys
      add_products<kEach, kEach, kWidth>(s, queries, keys, row, column);
      add_products<kEach, kEach, kWidth>(dp, given, values, row, column);
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t query = start + row + i * kAcross;
        const Seen of(p, query);
        const int64_t at_row = head.row + (query < p.queries ? query : 0);
        for (uint32_t j = 0; j < kEach; ++j) {
          const uint32_t at = column + j * kAcross;
          const float probability =
              first + at < of.keys ? expf(s[i][j] * p.scale - all.shift[at_row]) * all.share[at_row] : 0.0f;
          probabilities[at][row + i * kAcross] = probability;
          gradients[at][row + i * kAcross] = probability * (dp[i][j] - all.own[at_row]) * of.by;
        }
      }
      __syncthreads();
      add_rows<kEach, kWidth>(of_value, probabilities, given, row, column);
      add_rows<kEach, kWidth>(of_key, gradients, queries, row, column);
      __syncthreads();
    }
  }
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t key = first + row + i * kAcross;
    if (key >= p.keys) continue;
    float *to_key = dk + any.k + static_cast<int64_t>(key) * p.k_row,
          *to_value = dv + any.v + static_cast<int64_t>(key) * p.v_row;
    for (uint32_t c = 0; c < kPiece; ++c) {
      const uint32_t at = column * kPiece + c;
      if (at < p.width) to_key[at] = of_key[i].x[c];
      if (at < p.values) to_value[at] = of_value[i].x[c];
    }
  }
}

}  // namespace

#define HM_BY_HEAD(kernel) (width <= 32 ? HM_FUNCTION(kernel<32>) : HM_FUNCTION(kernel<64>))
Function attend_tiles_function(uint32_t width) { return HM_BY_HEAD(attend_tiles); }
Function attend_tiles_queries_function(uint32_t width) { return HM_BY_HEAD(attend_tiles_queries); }
Function attend_tiles_keys_function(uint32_t width) { return HM_BY_HEAD(attend_tiles_keys); }

}  // namespace harmonics::cuda
