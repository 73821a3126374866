// Attention with lengths, mask, bias, window, cap and sinks; rotary positions; rows appended to a cache.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kMostOfLane = kWidestHead / kWarp;

__device__ inline float element(const void* x, uint32_t half, int64_t i) {
  return half ? static_cast<float>(static_cast<const Half*>(x)[i]) : static_cast<const float*>(x)[i];
}

// A warp per query: lanes share the head's elements, and all keys are visited in order.
__global__ void __launch_bounds__(kThreads)
    attend(const float* q, const void* k, const void* v, const int32_t* lengths, const uint8_t* mask, const float* bias,
           const float* sinks, float* out, float* lse, AttendParameters p) {
  const uint32_t row = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (row >= p.batch * p.heads * p.queries) return;
  const uint32_t t = row % p.queries, head = row / p.queries % p.heads, batch = row / p.queries / p.heads,
                 group = head / (p.heads / p.shared);
  const int64_t keys = static_cast<int64_t>(p.keys), queries = static_cast<int64_t>(p.queries);
  int64_t length = p.has_lengths ? lengths[batch] : keys;
  length = length < 0 ? 0 : length > keys ? keys : length;
  const int64_t place = length - queries + t, from = static_cast<int64_t>(p.window);
  const int64_t first = from && place - from + 1 > 0 ? place - from + 1 : 0;
  const int64_t end = p.causal && place + 1 < length ? place + 1 : length;
  const float* own = q + static_cast<int64_t>(batch) * p.heads * p.queries * p.width +
                     static_cast<int64_t>(head) * p.q_head + static_cast<int64_t>(t) * p.q_row;
  const int64_t k_at =
                    static_cast<int64_t>(batch) * p.shared * p.keys * p.width + static_cast<int64_t>(group) * p.k_head,
                v_at =
                    static_cast<int64_t>(batch) * p.shared * p.keys * p.values + static_cast<int64_t>(group) * p.v_head;
  const int64_t table = static_cast<int64_t>(t) * p.keys;
  const uint8_t* seen =
      p.has_mask ? mask + static_cast<int64_t>(batch) * p.mask_item + static_cast<int64_t>(head) * p.mask_head + table
                 : nullptr;
  const float* more =
      p.has_bias ? bias + static_cast<int64_t>(batch) * p.bias_item + static_cast<int64_t>(head) * p.bias_head + table
                 : nullptr;
  float mine[kMostOfLane], sums[kMostOfLane];
  for (uint32_t i = 0; i < kMostOfLane; ++i) {
    mine[i] = i * kWarp + lane < p.width ? own[i * kWarp + lane] : 0.0f;
    sums[i] = 0;
  }
  float largest = p.has_sinks ? sinks[head] : -infinity(), total = p.has_sinks ? 1.0f : 0.0f;
  for (int64_t j = first; j < end; ++j) {
    float score = 0;
    for (uint32_t i = 0; i * kWarp + lane < p.width; ++i)
      score += mine[i] * element(k, p.half_keys, k_at + j * p.k_row + i * kWarp + lane);
    score = join_warp<Sum>(score) * p.scale;
    if (p.cap > 0) score = tanhf(score / p.cap) * p.cap;
    if (more) score += more[j];
    if ((seen && !seen[j]) || score == -infinity()) continue;
    if (score > largest) {
      const float less = expf(largest - score);
      total *= less;
      for (uint32_t i = 0; i < kMostOfLane; ++i) sums[i] *= less;
      largest = score;
    }
    const float e = expf(score - largest);
    total += e;
    for (uint32_t i = 0; i * kWarp + lane < p.values; ++i)
      sums[i] += e * element(v, p.half_values, v_at + j * p.v_row + i * kWarp + lane);
  }
  float* to = out + static_cast<int64_t>(batch) * p.heads * p.queries * p.values +
              static_cast<int64_t>(head) * p.out_head + static_cast<int64_t>(t) * p.out_row;
  for (uint32_t i = 0; i * kWarp + lane < p.values; ++i) to[i * kWarp + lane] = total == 0 ? 0.0f : sums[i] / total;
  if (lane == 0) lse[row] = total == 0 ? -infinity() : logf(total) + largest;
}

// A thread per pair of a row, and one per element that is not turned. Angles in f64, for accuracy at late positions.
__global__ void turn(const float* x, const int32_t* positions, const float* frequencies, float* y, TurnParameters p) {
  const uint32_t i = thread_number(), each = p.width - p.half;
  if (i >= p.count) return;
  const uint32_t row = i / each, pair = i % each;
  const int64_t base = static_cast<int64_t>(row) * p.width;
  if (pair >= p.half) {
    y[base + p.half + pair] = x[base + p.half + pair];
    return;
  }
  const uint32_t t = row / p.repeats % p.positions;
  const double place = p.has_positions ? positions[p.own_positions ? row / p.item * p.positions + t : t]
                                       : static_cast<double>(p.offset) + t;
  const double angle = place * (p.has_frequencies ? static_cast<double>(frequencies[pair]) : exp(pair * p.decay));
  const float c = static_cast<float>(cos(angle)), s = static_cast<float>(sin(angle) * p.sign);
  const int64_t left = base + (p.interleaved ? 2 * pair : pair), right = p.interleaved ? left + 1 : left + p.half;
  const float a = x[left], b = x[right];
  y[left] = a * c - b * s;
  y[right] = b * c + a * s;
}

__device__ inline int64_t append_place(const int32_t* start, const AppendParameters& p, uint32_t i) {
  const uint32_t number = i / p.row, batch = number / p.rows;
  const int64_t last = static_cast<int64_t>(p.capacity) - p.rows, given = start[batch];
  const int64_t at = (given < 0 ? 0 : given > last ? last : given) + number % p.rows;
  return (static_cast<int64_t>(batch) * p.capacity + at) * p.row + i % p.row;
}
template <typename T>
__global__ void append(const T* rows, const int32_t* start, T* cache, AppendParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) cache[append_place(start, p, i)] = rows[i];
}
__global__ void append_half(const float* rows, const int32_t* start, Half* cache, AppendParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) cache[append_place(start, p, i)] = static_cast<Half>(rows[i]);
}

}  // namespace

Function attend_function() { return HM_FUNCTION(attend); }
Function turn_function() { return HM_FUNCTION(turn); }
Function append_function(uint32_t element_bytes) { return HM_BY_WIDTH(append); }
Function append_half_function() { return HM_FUNCTION(append_half); }

}  // namespace harmonics::cuda
