// Attention with lengths, mask, bias, window, soft cap and sinks over caches, and its gradient. The lanes of a warp
// share the elements of a head; keys or queries are visited in order.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kMostOfLane = kWidestHead / kWarp;

__device__ inline uint32_t warp_number() { return blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp; }

__device__ inline float element(const void* x, CacheType type, int64_t i) {
  if (type == CacheType::f32) return static_cast<const float*>(x)[i];
  if (type == CacheType::f16) return static_cast<float>(static_cast<const Half*>(x)[i]);
  if (type == CacheType::bf16) return static_cast<float>(static_cast<const BFloat16*>(x)[i]);
  const uint8_t* block = static_cast<const uint8_t*>(x) + i / kCacheBlock * kCacheBytes;
  return static_cast<float>(*reinterpret_cast<const Half*>(block)) *
         static_cast<float>(static_cast<int8_t>(block[2 + i % kCacheBlock]));
}

// Inputs of the scores besides q and k.
struct Terms {
  const int32_t* lengths;
  const uint8_t* mask;
  const float* bias;
  const int32_t* pages = nullptr;
};

// A query: offsets of its rows, and its range of keys.
struct Query {
  uint32_t batch, head;
  int64_t q_at, k_at, v_at, out_at, row, first, end;
  const uint8_t* seen;
  const float* more;
  const int32_t* pages;

  __device__ Query(const Terms& terms, const AttendParameters& p, uint32_t batch_, uint32_t head_, uint32_t t)
      : batch(batch_), head(head_) {
    const auto wide = [](uint32_t n) { return static_cast<int64_t>(n); };
    const uint32_t group = head / (p.heads / p.shared);
    const int64_t keys = p.keys, queries = p.queries, table = wide(t) * keys;
    const int64_t given = terms.lengths ? terms.lengths[batch] : keys, from = p.window;
    const int64_t length = given < 0 ? 0 : given > keys ? keys : given, place = length - queries + t;
    first = from && place - from + 1 > 0 ? place - from + 1 : 0;
    end = p.causal && place + 1 < length ? place + 1 : length;
    q_at = wide(batch) * p.heads * queries * p.width + wide(head) * p.q_head + wide(t) * p.q_row;
    out_at = wide(batch) * p.heads * queries * p.values + wide(head) * p.out_head + wide(t) * p.out_row;
    k_at = wide(batch) * p.shared * keys * p.width + wide(group) * p.k_head;
    v_at = wide(batch) * p.shared * keys * p.values + wide(group) * p.v_head;
    row = (wide(batch) * p.heads + head) * queries + t;
    seen = terms.mask ? terms.mask + wide(batch) * p.mask_item + wide(head) * p.mask_head + table : nullptr;
    more = terms.bias ? terms.bias + wide(batch) * p.bias_item + wide(head) * p.bias_head + table : nullptr;
    pages = terms.pages ? terms.pages + wide(batch) * p.entries : nullptr;
    if (pages) k_at = wide(group) * p.k_head, v_at = wide(group) * p.v_head;
  }
  // Places of key j and its value. An entry that names no page reads the nearest.
  __device__ void find(const AttendParameters& p, int64_t j, int64_t& key, int64_t& value) const {
    int64_t page = 0;
    if (pages) {
      const auto at = static_cast<uint32_t>(j);
      page = pages[at / p.page];
      page = (page < 0 ? 0 : page >= p.pool ? p.pool - 1 : page) * p.shared * p.page;
      j = at % p.page;
    }
    key = k_at + page * p.width + j * p.k_row;
    value = v_at + page * p.values + j * p.v_row;
  }
  // Returns the score of key j from the product q k; -inf: masked. `derivative`: of the score by the product.
  __device__ float score(const AttendParameters& p, int64_t j, float product, float& derivative) const {
    float s = product * p.scale;
    derivative = p.scale;
    if (p.cap > 0) {
      const float bent = tanhf(s / p.cap);
      s = bent * p.cap;
      derivative *= 1 - bent * bent;
    }
    if (more) s += more[j];
    return seen && !seen[j] ? -infinity() : s;
  }
};

// This lane's elements of an f32 row. Loops have constant trip counts, so that x stays in registers.
struct Lane {
  float x[kMostOfLane];
  __device__ Lane(const float* row, uint32_t width) {
    const uint32_t lane = threadIdx.x % kWarp;
    for (uint32_t i = 0; i < kMostOfLane; ++i) x[i] = row && i * kWarp + lane < width ? row[i * kWarp + lane] : 0.0f;
  }
  __device__ float dot(const void* y, CacheType type, int64_t at, uint32_t width) const {
    const uint32_t lane = threadIdx.x % kWarp;
    float sum = 0;
    for (uint32_t i = 0; i < kMostOfLane; ++i)
      if (i * kWarp + lane < width) sum += x[i] * element(y, type, at + i * kWarp + lane);
    return join_warp<Sum>(sum);
  }
  __device__ void add(float factor, const void* y, CacheType type, int64_t at, uint32_t width) {
    const uint32_t lane = threadIdx.x % kWarp;
    for (uint32_t i = 0; i < kMostOfLane; ++i)
      if (i * kWarp + lane < width) x[i] += factor * element(y, type, at + i * kWarp + lane);
  }
  __device__ void scale(float factor) {
    for (uint32_t i = 0; i < kMostOfLane; ++i) x[i] *= factor;
  }
  __device__ void store(float* row, uint32_t width) const {
    const uint32_t lane = threadIdx.x % kWarp;
    for (uint32_t i = 0; i < kMostOfLane; ++i)
      if (i * kWarp + lane < width) row[i * kWarp + lane] = x[i];
  }
};

// One warp per query.
__global__ void __launch_bounds__(kThreads)
    attend(const float* q, const void* k, const void* v, const int32_t* lengths, const uint8_t* mask, const float* bias,
           const float* sinks, const int32_t* pages, float* out, float* lse, AttendParameters p) {
  const uint32_t row = warp_number();
  if (row >= p.batch * p.heads * p.queries) return;
  const Terms terms{p.has_lengths ? lengths : nullptr, p.has_mask ? mask : nullptr, p.has_bias ? bias : nullptr,
                    p.entries ? pages : nullptr};
  const Query query(terms, p, row / p.queries / p.heads, row / p.queries % p.heads, row % p.queries);
  const Lane mine(q + query.q_at, p.width);
  Lane sums(nullptr, 0);
  float largest = p.has_sinks ? sinks[query.head] : -infinity(), total = p.has_sinks ? 1.0f : 0.0f, derivative;
  for (int64_t j = query.first; j < query.end; ++j) {
    int64_t key, value;
    query.find(p, j, key, value);
    const float score = query.score(p, j, mine.dot(k, p.key_type, key, p.width), derivative);
    if (score == -infinity()) continue;
    if (score > largest) {
      const float less = expf(largest - score);
      total *= less;
      sums.scale(less);
      largest = score;
    }
    const float e = expf(score - largest);
    total += e;
    sums.add(e, v, p.value_type, value, p.values);
  }
  if (total != 0) sums.scale(1 / total);
  if (total == 0) sums.scale(0);
  sums.store(out + query.out_at, p.values);
  if (threadIdx.x % kWarp == 0) lse[row] = total == 0 ? -infinity() : logf(total) + largest;
}

// Softmax statistics of each query: p = exp(score - shift) * share; the gradient of a score is p * (dp - own) * by.
// `by` is 0 for a query with a single visible key, whose probability is 1 for any score.
struct Softmax {
  float *own, *shift, *share, *by;
  __device__ Softmax(float* all, const AttendParameters& p) {
    const int64_t rows = static_cast<int64_t>(p.batch) * p.heads * p.queries;
    own = all, shift = all + rows, share = all + 2 * rows, by = all + 3 * rows;
  }
  __device__ float probability(const Query& query, float score) const {
    return expf(score - shift[query.row]) * share[query.row];
  }
  __device__ float gradient(const Query& query, float probability, float dp) const {
    return probability * (dp - own[query.row]) * by[query.row];
  }
};

// One warp per query: softmax statistics and dq.
__global__ void __launch_bounds__(kThreads)
    attend_queries(const float* q, const float* k, const float* v, const float* dout, const int32_t* lengths,
                   const uint8_t* mask, const float* bias, const float* sinks, float* dq, float* statistics,
                   AttendParameters p) {
  const uint32_t row = warp_number();
  if (row >= p.batch * p.heads * p.queries) return;
  const Terms terms{p.has_lengths ? lengths : nullptr, p.has_mask ? mask : nullptr, p.has_bias ? bias : nullptr};
  const Query query(terms, p, row / p.queries / p.heads, row / p.queries % p.heads, row % p.queries);
  const Softmax all(statistics, p);
  const Lane mine(q + query.q_at, p.width), given(dout + query.out_at, p.values);
  const auto product = [&](int64_t j) { return mine.dot(k, CacheType::f32, query.k_at + j * p.k_row, p.width); };
  const auto gradient_of_p = [&](int64_t j) {
    return given.dot(v, CacheType::f32, query.v_at + j * p.v_row, p.values);
  };
  float largest = p.has_sinks ? sinks[query.head] : -infinity(), total = p.has_sinks ? 1.0f : 0.0f, own = 0, derivative;
  uint32_t visible = 0;
  for (int64_t j = query.first; j < query.end; ++j) {
    const float score = query.score(p, j, product(j), derivative), dp = gradient_of_p(j);
    if (score == -infinity()) continue;
    ++visible;
    if (score > largest) {
      const float less = expf(largest - score);
      total *= less, own *= less, largest = score;
    }
    const float e = expf(score - largest);
    total += e, own += e * dp;
  }
  own = total == 0 ? 0 : own / total;
  const float shift = total == 0 ? 0 : largest, share = total == 0 ? 0 : 1 / total,
              by = p.has_sinks || visible != 1 ? 1.0f : 0.0f;
  if (threadIdx.x % kWarp == 0) all.own[row] = own, all.shift[row] = shift, all.share[row] = share, all.by[row] = by;
  Lane sums(nullptr, 0);
  for (int64_t j = query.first; j < query.end; ++j) {
    const float score = query.score(p, j, product(j), derivative), dp = gradient_of_p(j);
    if (score == -infinity()) continue;
    const float ds = expf(score - shift) * share * (dp - own) * by;
    sums.add(ds * derivative, k, CacheType::f32, query.k_at + j * p.k_row, p.width);
  }
  sums.store(dq + query.q_at, p.width);
}

// One warp per key: dk and dv, from the queries of all heads that share the key.
__global__ void __launch_bounds__(kThreads)
    attend_keys(const float* q, const float* k, const float* v, const float* dout, const int32_t* lengths,
                const uint8_t* mask, const float* bias, float* statistics, float* dk, float* dv, AttendParameters p) {
  const uint32_t number = warp_number();
  if (number >= p.batch * p.shared * p.keys) return;
  const int64_t j = number % p.keys;
  const uint32_t shared = number / p.keys % p.shared, batch = number / p.keys / p.shared, group = p.heads / p.shared;
  const Terms terms{p.has_lengths ? lengths : nullptr, p.has_mask ? mask : nullptr, p.has_bias ? bias : nullptr};
  const Softmax all(statistics, p);
  const Query any(terms, p, batch, shared * group, 0);
  const int64_t k_at = any.k_at + j * p.k_row, v_at = any.v_at + j * p.v_row;
  const Lane key(k + k_at, p.width), value(v + v_at, p.values);
  Lane of_key(nullptr, 0), of_value(nullptr, 0);
  for (uint32_t head = shared * group; head < (shared + 1) * group; ++head)
    for (uint32_t t = 0; t < p.queries; ++t) {
      const Query query(terms, p, batch, head, t);
      if (j < query.first || j >= query.end) continue;
      float derivative;
      const float score = query.score(p, j, key.dot(q, CacheType::f32, query.q_at, p.width), derivative);
      const float dp = value.dot(dout, CacheType::f32, query.out_at, p.values);
      if (score == -infinity()) continue;
      const float probability = all.probability(query, score);
      of_key.add(all.gradient(query, probability, dp) * derivative, q, CacheType::f32, query.q_at, p.width);
      of_value.add(probability, dout, CacheType::f32, query.out_at, p.values);
    }
  of_key.store(dk + k_at, p.width);
  of_value.store(dv + v_at, p.values);
}

// One warp per element of the bias: the sum over the batch items and heads that share it.
__global__ void __launch_bounds__(kThreads)
    attend_bias(const float* q, const float* k, const float* v, const float* dout, const int32_t* lengths,
                const uint8_t* mask, const float* bias, float* statistics, float* dbias, AttendParameters p) {
  const uint32_t tables = !p.bias_item ? 1 : p.bias_head ? p.batch * p.heads : p.batch, number = warp_number();
  if (number >= tables * p.queries * p.keys) return;
  const int64_t j = number % p.keys;
  const uint32_t t = number / p.keys % p.queries, table = number / p.keys / p.queries;
  const uint32_t sharing = p.batch * p.heads / tables;
  const Terms terms{p.has_lengths ? lengths : nullptr, p.has_mask ? mask : nullptr, bias};
  const Softmax all(statistics, p);
  float sum = 0;
  for (uint32_t n = table * sharing; n < (table + 1) * sharing; ++n) {
    const Query query(terms, p, n / p.heads, n % p.heads, t);
    if (j < query.first || j >= query.end) continue;
    const Lane mine(q + query.q_at, p.width), given(dout + query.out_at, p.values);
    float derivative;
    const float score = query.score(p, j, mine.dot(k, CacheType::f32, query.k_at + j * p.k_row, p.width), derivative);
    const float dp = given.dot(v, CacheType::f32, query.v_at + j * p.v_row, p.values);
    if (score != -infinity()) sum += all.gradient(query, all.probability(query, score), dp);
  }
  if (threadIdx.x % kWarp == 0) dbias[number] = sum;
}

// One thread per head.
__global__ void attend_sinks(const float* sinks, float* statistics, float* dsinks, AttendParameters p) {
  const uint32_t head = thread_number();
  if (head >= p.heads) return;
  const Softmax all(statistics, p);
  float sum = 0;
  for (uint32_t batch = 0; batch < p.batch; ++batch)
    for (uint32_t t = 0; t < p.queries; ++t) {
      const int64_t row = (static_cast<int64_t>(batch) * p.heads + head) * p.queries + t;
      sum -= expf(sinks[head] - all.shift[row]) * all.share[row] * all.own[row];
    }
  dsinks[head] = sum;
}

}  // namespace

Function attend_function() { return HM_FUNCTION(attend); }
Function attend_queries_function() { return HM_FUNCTION(attend_queries); }
Function attend_keys_function() { return HM_FUNCTION(attend_keys); }
Function attend_bias_function() { return HM_FUNCTION(attend_bias); }
Function attend_sinks_function() { return HM_FUNCTION(attend_sinks); }

}  // namespace harmonics::cuda
