// The weight gradient of a convolution as an implicit GEMM: dweight [outputs, channels * taps] = dy [outputs,
// positions] times patches [positions, channels * taps], which are read from x. Positions are those of all samples.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kRun = 32;        // positions per step, one per lane
constexpr uint32_t kRunStride = 36;  // leading dimension in shared memory: 16-byte aligned, no bank conflicts
constexpr uint32_t kAcross = 16;     // threads along columns, and along rows
constexpr uint32_t kColumns = 64;    // columns of a tile
constexpr uint32_t kColumnsEach = kColumns / kAcross;

struct alignas(16) Four {
  float x[4];
};

// Writes parts [parts, outputs, channels * taps]. A block computes a tile over a range of positions (split-k).
template <uint32_t kRowsEach>
__global__ void __launch_bounds__(kThreads)
    weight_gradient(const float* x, const float* dy, float* parts, WeightGradientParameters p) {
  constexpr uint32_t kRows = kAcross * kRowsEach;
  alignas(16) __shared__ float left[kRows][kRunStride], right[kColumns][kRunStride];
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t row = threadIdx.x / kAcross, column = threadIdx.x % kAcross;
  const uint32_t first_row = blockIdx.y * kRows, first_column = blockIdx.x * kColumns;
  const uint32_t places = p.high * p.wide, columns = p.channels * p.taps_high * p.taps_wide;
  const int64_t positions = static_cast<int64_t>(p.batch) * places, begin = blockIdx.z * p.part,
                end = begin + p.part < positions ? begin + p.part : positions;
  // The columns of patches that this thread reads.
  constexpr uint32_t kReads = kColumns / (kThreads / kWarp);
  int32_t channel[kReads], down[kReads], across[kReads];
  for (uint32_t i = 0; i < kReads; ++i) {
    const uint32_t c = first_column + warp + i * (kThreads / kWarp), tap = c % (p.taps_high * p.taps_wide);
    channel[i] = c < columns ? static_cast<int32_t>(c / (p.taps_high * p.taps_wide)) : -1;
    down[i] = static_cast<int32_t>(tap / p.taps_wide) * p.apart_high - p.low_high;
    across[i] = static_cast<int32_t>(tap % p.taps_wide) * p.apart_wide - p.low_wide;
  }
  float sums[kRowsEach][kColumnsEach] = {};
  for (int64_t step = begin; step < end; step += kRun) {
    const int64_t position = step + lane;
    const bool inside = position < end;
    const auto sample = static_cast<uint32_t>(inside ? position / places : 0),
               place = static_cast<uint32_t>(inside ? position - static_cast<int64_t>(sample) * places : 0);
    const float* of_sample = dy + static_cast<int64_t>(sample) * p.outputs * places + place;
    for (uint32_t i = 0; i < kRows / (kThreads / kWarp); ++i) {
      const uint32_t r = warp + i * (kThreads / kWarp), output = first_row + r;
      left[r][lane] = inside && output < p.outputs ? of_sample[static_cast<int64_t>(output) * places] : 0.0f;
    }
    const int32_t at_high = static_cast<int32_t>(place / p.wide) * p.step_high,
                  at_wide = static_cast<int32_t>(place % p.wide) * p.step_wide;
    for (uint32_t i = 0; i < kReads; ++i) {
      const int32_t h = at_high + down[i], w = at_wide + across[i];
      const bool seen = inside && channel[i] >= 0 && h >= 0 && h < p.size_high && w >= 0 && w < p.size_wide;
      const int64_t plane = static_cast<int64_t>(sample) * p.channels + (seen ? channel[i] : 0);
      right[warp + i * (kThreads / kWarp)][lane] = seen ? x[(plane * p.size_high + h) * p.size_wide + w] : 0.0f;
    }
    __syncthreads();
    for (uint32_t k = 0; k < kRun; k += 4) {
      Four a[kRowsEach], b[kColumnsEach];
      for (uint32_t i = 0; i < kRowsEach; ++i) a[i] = *reinterpret_cast<const Four*>(&left[row + i * kAcross][k]);
      for (uint32_t j = 0; j < kColumnsEach; ++j)
        b[j] = *reinterpret_cast<const Four*>(&right[column + j * kAcross][k]);
      for (uint32_t n = 0; n < 4; ++n)
        for (uint32_t i = 0; i < kRowsEach; ++i)
          for (uint32_t j = 0; j < kColumnsEach; ++j) sums[i][j] += a[i].x[n] * b[j].x[n];
    }
    __syncthreads();
  }
  float* to = parts + static_cast<int64_t>(blockIdx.z) * p.outputs * columns;
  for (uint32_t i = 0; i < kRowsEach; ++i)
    for (uint32_t j = 0; j < kColumnsEach; ++j) {
      const uint32_t r = first_row + row + i * kAcross, c = first_column + column + j * kAcross;
      if (r < p.outputs && c < columns) to[static_cast<int64_t>(r) * columns + c] = sums[i][j];
    }
}

// Adds the parts: a lane per element; the warps of a block share the parts.
__global__ void __launch_bounds__(kThreads) sum_parts(const float* parts, float* y, SumPartsParameters p) {
  constexpr uint32_t kWarps = kThreads / kWarp;
  __shared__ float sums[kWarps][kWarp];
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, i = blockIdx.x * kWarp + lane;
  float sum = 0;
  if (i < p.count)
    for (uint32_t part = warp; part < p.parts; part += kWarps) sum += parts[static_cast<int64_t>(part) * p.count + i];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= p.count) return;
  for (uint32_t w = 1; w < kWarps; ++w) sum += sums[w][lane];
  y[i] = sum;
}

}  // namespace

Function weight_gradient_function(uint32_t rows) {
  return rows == 16   ? HM_FUNCTION(weight_gradient<1>)
         : rows == 32 ? HM_FUNCTION(weight_gradient<2>)
                      : HM_FUNCTION(weight_gradient<4>);
}
Function sum_parts_function() { return HM_FUNCTION(sum_parts); }

}  // namespace harmonics::cuda
