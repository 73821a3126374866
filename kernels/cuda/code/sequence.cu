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

// Returns the row of the cache for an appended row; -1: it has no page.
__device__ inline int64_t append_row(const int32_t* start, const int32_t* pages, const AppendParameters& p,
                                     uint32_t number) {
  const uint32_t batch = number / p.rows;
  const int64_t last = static_cast<int64_t>(p.capacity) - p.rows, given = start[batch];
  if (p.entries == 0)
    return static_cast<int64_t>(batch) * p.capacity + (given < 0 ? 0 : given > last ? last : given) + number % p.rows;
  const int64_t at = given + number % p.rows;
  if (at < 0 || at >= static_cast<int64_t>(p.entries) * p.capacity) return -1;
  const auto place = static_cast<uint32_t>(at);
  const int32_t page = pages[batch * p.entries + place / p.capacity];
  if (page < 0 || page >= static_cast<int64_t>(p.pool)) return -1;
  return static_cast<int64_t>(page) * p.capacity + place % p.capacity;
}
// Returns the place of element i; -1: it is not written. Of rows with the same place, the last remains.
__device__ inline int64_t append_place(const int32_t* start, const int32_t* pages, const AppendParameters& p,
                                       uint32_t i) {
  const uint32_t number = i / p.row;
  const int64_t row = append_row(start, pages, p, number);
  if (row < 0) return -1;
  for (uint32_t later = number + 1; later < p.all; ++later)
    if (append_row(start, pages, p, later) == row) return -1;
  return row * p.row + i % p.row;
}
template <typename T>
__global__ void append(const T* rows, const int32_t* start, const int32_t* pages, T* cache, AppendParameters p) {
  const uint32_t i = thread_number();
  const int64_t to = i < p.count ? append_place(start, pages, p, i) : -1;
  if (to >= 0) cache[to] = rows[i];
}
template <typename T>
__global__ void append_half(const float* rows, const int32_t* start, const int32_t* pages, T* cache,
                            AppendParameters p) {
  const uint32_t i = thread_number();
  const int64_t to = i < p.count ? append_place(start, pages, p, i) : -1;
  if (to >= 0) cache[to] = static_cast<T>(rows[i]);
}

// One thread per block of 32; a row is whole blocks.
__global__ void append_blocks(const float* rows, const int32_t* start, const int32_t* pages, uint8_t* cache,
                              AppendParameters p) {
  const uint32_t i = thread_number();
  const int64_t place = i < p.count ? append_place(start, pages, p, i) : -1;
  if (place < 0) return;
  const float* from = rows + static_cast<int64_t>(i) * kCacheBlock;
  uint8_t* to = cache + place * kCacheBytes;
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
