// Rotary position embedding; rows appended to a key-value cache.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

// One thread per pair of a row, and one per element that is not rotated. Angles are f64, for accuracy at large
// positions.
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
template <typename T>
__global__ void append_half(const float* rows, const int32_t* start, T* cache, AppendParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) cache[append_place(start, p, i)] = static_cast<T>(rows[i]);
}

// One thread per block of 32; a row is whole blocks.
__global__ void append_blocks(const float* rows, const int32_t* start, uint8_t* cache, AppendParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float* from = rows + static_cast<int64_t>(i) * kCacheBlock;
  uint8_t* to = cache + append_place(start, p, i) * kCacheBytes;
  float most = 0;
  bool finite = true;
  for (uint32_t j = 0; j < kCacheBlock; ++j) {
    most = most > fabsf(from[j]) ? most : fabsf(from[j]);
    finite = finite && from[j] - from[j] == 0;
  }
  const float scale = finite ? most / 127 : 0, inverse = scale > 0 ? 1 / scale : 0;
  // A block with an infinity or NaN decodes to NaN.
  *reinterpret_cast<Half*>(to) = static_cast<Half>(finite ? scale : __int_as_float(0x7fc00000));
  for (uint32_t j = 0; j < kCacheBlock; ++j) {
    const float steps = roundf(from[j] * inverse);  // ties away from zero
    to[2 + j] = finite ? static_cast<uint8_t>(static_cast<int8_t>(steps < -127 ? -127 : steps > 127 ? 127 : steps)) : 0;
  }
}

}  // namespace

Function turn_function() { return HM_FUNCTION(turn); }
Function append_function(uint32_t element_bytes) { return HM_BY_WIDTH(append); }
Function append_half_function(uint32_t dtype) {
  return dtype == HX_F16 ? HM_FUNCTION(append_half<Half>) : HM_FUNCTION(append_half<BFloat16>);
}
Function append_blocks_function() { return HM_FUNCTION(append_blocks); }

}  // namespace harmonics::cuda
