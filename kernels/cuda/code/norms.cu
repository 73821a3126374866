// Gradients of layer_norm and rms_norm; batch_norm and group_norm with their gradients.
#include "packs.hpp"

namespace harmonics::cuda {
namespace {

// Writes a block's sums by column, adding the sums of its warps in order. Warps share columns only if each warp has its
// own rows.
template <uint32_t kLanes, uint32_t kPacks>
__device__ inline void put_sums(const Row<kLanes, kPacks>& row, const Pack<float> (&mine)[kPacks], float* to) {
  if constexpr (kLanes != kWarp) {
    row.kept([&](uint32_t j, const Place& at) { write(to, at, mine[j]); });
  } else {
    __shared__ float sums[4 * kWarp * kPacks];
    for (uint32_t w = 0; w < kThreads / kWarp; ++w) {
      if (threadIdx.x / kWarp == w)
        row.kept([&](uint32_t j, const Place& at) {
          HM_UNROLL
          for (uint32_t c = 0; c < 4; ++c)
            if (at.holds(c)) sums[at.at(c)] = w == 0 ? mine[j].x[c] : sums[at.at(c)] + mine[j].x[c];
        });
      __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < row.n; i += kThreads) to[i] = sums[i];
    __syncthreads();
  }
}

// A warp or a block processes equally spaced rows and accumulates their dgain and dbias by column in registers.
template <uint32_t kLanes, uint32_t kPacks, bool kCentred>
__device__ inline void row_grad(const float* x, const float* gain, const float* means, const float* rstds,
                                const float* dy, float* dx, float* sums, const NormGradParameters& p) {
  const Row<kLanes, kPacks> row(p.columns);
  const float count = static_cast<float>(row.n);
  constexpr uint32_t kRows = Row<kLanes, kPacks>::kBlock / kLanes;  // rows per block at a time
  Pack<float> dgain[kPacks], dbias[kPacks];
  row.kept([&](uint32_t j, const Place&) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) dgain[j].x[c] = dbias[j].x[c] = 0;
  });
  for (uint32_t r = row.number(); r < p.rows; r += p.blocks * kRows) {
    const int64_t start = static_cast<int64_t>(r) * row.n;
    const float mean = kCentred ? means[r] : 0, rstd = rstds[r];
    Pack<float> units[kPacks], gradients[kPacks];
    row.kept([&](uint32_t j, const Place& at) {
      units[j] = read(x + start, at, mean);
      gradients[j] = read(dy + start, at, 0);
    });
    float sum = 0, product = 0;
    row.kept([&](uint32_t j, const Place& at) {
      const Pack<float> g = read(gain, at, 0);
      HM_UNROLL
      for (uint32_t c = 0; c < 4; ++c) {
        const float d = gradients[j].x[c], unit = (units[j].x[c] - mean) * rstd, dunit = d * g.x[c];
        sum += dunit;
        product += dunit * unit;
        dgain[j].x[c] += d * unit;
        if (kCentred) dbias[j].x[c] += d;
        units[j].x[c] = unit;
        gradients[j].x[c] = dunit;
      }
    });
    const float along = kCentred ? join_lanes<kLanes, Sum>(sum) / count : 0,
                across = join_lanes<kLanes, Sum>(product) / count;
    row.kept([&](uint32_t j, const Place& at) {
      Pack<float> v;
      HM_UNROLL
      for (uint32_t c = 0; c < 4; ++c) v.x[c] = rstd * (gradients[j].x[c] - along - units[j].x[c] * across);
      write(dx + start, at, v);
    });
  }
  const int64_t half = static_cast<int64_t>(p.blocks) * row.n, mine = static_cast<int64_t>(blockIdx.x) * row.n;
  put_sums(row, dgain, sums + mine);
  if (kCentred) put_sums(row, dbias, sums + half + mine);
}
template <uint32_t kLanes, uint32_t kPacks>
__global__ void __launch_bounds__(Row<kLanes, kPacks>::kBlock)
    layer_norm_grad(const float* x, const float* gain, const float* mean, const float* rstd, const float* dy, float* dx,
                    float* sums, NormGradParameters p) {
  row_grad<kLanes, kPacks, true>(x, gain, mean, rstd, dy, dx, sums, p);
}
template <uint32_t kLanes, uint32_t kPacks>
__global__ void __launch_bounds__(Row<kLanes, kPacks>::kBlock)
    rms_norm_grad(const float* x, const float* gain, const float* rstd, const float* dy, float* dx, float* sums,
                  NormGradParameters p) {
  row_grad<kLanes, kPacks, false>(x, gain, nullptr, rstd, dy, dx, sums, p);
}

// Returns the sum of a column over all blocks. Lanes of a warp have adjacent columns; each warp sums every eighth
// block.
__device__ inline float sum_of_blocks(const float* sums, const NormGradParameters& p) {
  constexpr uint32_t kWarps = kThreads / kWarp;
  __shared__ float parts[kWarps][kWarp];
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, column = blockIdx.x * kWarp + lane;
  float total = 0;
  if (column < p.columns) {
    const float* from = sums + static_cast<int64_t>(warp) * p.columns + column;
    const uint32_t rounds = rounds_of(warp, p.blocks, kWarps);
    HM_UNROLL_BY(8)
    for (uint32_t i = 0; i < rounds; ++i) total += from[static_cast<int64_t>(i) * kWarps * p.columns];
  }
  __syncthreads();  // the previous call's parts have been read
  parts[warp][lane] = total;
  __syncthreads();
  total = 0;
  for (uint32_t w = 0; w < kWarps; ++w) total += parts[w][lane];
  return total;
}
__global__ void __launch_bounds__(kThreads) sum_blocks(const float* sums, float* dgain, NormGradParameters p) {
  const float total = sum_of_blocks(sums, p);
  const uint32_t column = blockIdx.x * kWarp + threadIdx.x;
  if (threadIdx.x < kWarp && column < p.columns) dgain[column] = total;
}
__global__ void __launch_bounds__(kThreads)
    sum_two_blocks(const float* sums, float* dgain, float* dbias, NormGradParameters p) {
  const float gain = sum_of_blocks(sums, p), bias = sum_of_blocks(sums + static_cast<int64_t>(p.blocks) * p.columns, p);
  const uint32_t column = blockIdx.x * kWarp + threadIdx.x;
  if (threadIdx.x >= kWarp || column >= p.columns) return;
  dgain[column] = gain;
  dbias[column] = bias;
}

// Calls f(offset) for this thread's elements of a channel.
template <typename F>
__device__ inline void each_of_channel(const ChannelParameters& p, uint32_t channel, F f) {
  const uint32_t n = p.batch * p.places;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads)
    f((static_cast<int64_t>(i / p.places) * p.channels + channel) * p.places + i % p.places);
}

__global__ void __launch_bounds__(kThreads) batch_norm(const float* x, const float* gain, const float* bias, float* y,
                                                       float* means, float* rstds, ChannelParameters p) {
  const uint32_t c = blockIdx.x;
  const float count = static_cast<float>(p.batch) * static_cast<float>(p.places);
  float sum = 0, rest = 0, square = 0;
  each_of_channel(p, c, [&](int64_t i) { sum += x[i]; });
  const float mean = join_block<Sum>(sum) / count;
  each_of_channel(p, c, [&](int64_t i) {
    rest += x[i] - mean;
    square += (x[i] - mean) * (x[i] - mean);
  });
  rest = join_block<Sum>(rest) / count;
  square = join_block<Sum>(square) / count;
  const float rstd = 1.0f / sqrtf(variance_of(square, rest) + p.epsilon), g = gain[c], b = bias[c];
  each_of_channel(p, c, [&](int64_t i) { y[i] = (x[i] - mean - rest) * rstd * g + b; });
  if (threadIdx.x != 0) return;
  means[c] = mean + rest;
  rstds[c] = rstd;
}

__global__ void __launch_bounds__(kThreads)
    batch_norm_grad(const float* x, const float* gain, const float* means, const float* rstds, const float* dy,
                    float* dx, float* dgain, float* dbias, ChannelParameters p) {
  const uint32_t c = blockIdx.x;
  const float count = static_cast<float>(p.batch) * static_cast<float>(p.places), mean = means[c], rstd = rstds[c],
              g = gain[c];
  float sum = 0, product = 0;
  each_of_channel(p, c, [&](int64_t i) {
    sum += dy[i];
    product += dy[i] * ((x[i] - mean) * rstd);
  });
  sum = join_block<Sum>(sum);
  product = join_block<Sum>(product);
  const float along = g * sum / count, across = g * product / count;
  each_of_channel(p, c, [&](int64_t i) { dx[i] = rstd * (g * dy[i] - along - (x[i] - mean) * rstd * across); });
  if (threadIdx.x != 0) return;
  dgain[c] = product;
  dbias[c] = sum;
}

// A group of a sample is contiguous in memory.
__global__ void __launch_bounds__(kThreads) group_norm(const float* x, const float* gain, const float* bias, float* y,
                                                       float* means, float* rstds, ChannelParameters p) {
  const uint32_t own = p.channels / p.groups, n = own * p.places, first = blockIdx.x % p.groups * own;
  const int64_t start = static_cast<int64_t>(blockIdx.x) * n;
  const float count = static_cast<float>(n);
  float sum = 0, rest = 0, square = 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) sum += x[start + i];
  const float mean = join_block<Sum>(sum) / count;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    rest += x[start + i] - mean;
    square += (x[start + i] - mean) * (x[start + i] - mean);
  }
  rest = join_block<Sum>(rest) / count;
  square = join_block<Sum>(square) / count;
  const float rstd = 1.0f / sqrtf(variance_of(square, rest) + p.epsilon);
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const uint32_t c = first + i / p.places;
    y[start + i] = (x[start + i] - mean - rest) * rstd * gain[c] + bias[c];
  }
  if (threadIdx.x != 0) return;
  means[blockIdx.x] = mean + rest;
  rstds[blockIdx.x] = rstd;
}

__global__ void __launch_bounds__(kThreads)
    group_norm_grad(const float* x, const float* gain, const float* means, const float* rstds, const float* dy,
                    float* dx, ChannelParameters p) {
  const uint32_t own = p.channels / p.groups, n = own * p.places, first = blockIdx.x % p.groups * own;
  const int64_t start = static_cast<int64_t>(blockIdx.x) * n;
  const float count = static_cast<float>(n), mean = means[blockIdx.x], rstd = rstds[blockIdx.x];
  float sum = 0, product = 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const float dunit = dy[start + i] * gain[first + i / p.places];
    sum += dunit;
    product += dunit * ((x[start + i] - mean) * rstd);
  }
  const float along = join_block<Sum>(sum) / count, across = join_block<Sum>(product) / count;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const float unit = (x[start + i] - mean) * rstd;
    dx[start + i] = rstd * (dy[start + i] * gain[first + i / p.places] - along - unit * across);
  }
}

__global__ void __launch_bounds__(kThreads)
    group_norm_sums(const float* x, const float* means, const float* rstds, const float* dy, float* dgain, float* dbias,
                    ChannelParameters p) {
  const uint32_t c = blockIdx.x, own = p.channels / p.groups, n = p.batch * p.places;
  float sum = 0, product = 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const uint32_t sample = i / p.places, group = sample * p.groups + c / own;
    const int64_t at = (static_cast<int64_t>(sample) * p.channels + c) * p.places + i % p.places;
    sum += dy[at];
    product += dy[at] * ((x[at] - means[group]) * rstds[group]);
  }
  sum = join_block<Sum>(sum);
  product = join_block<Sum>(product);
  if (threadIdx.x != 0) return;
  dgain[c] = product;
  dbias[c] = sum;
}

}  // namespace

// Short rows get many blocks; long rows few, since each block writes sums of that length.
#define HM_GRAD_BY_COLUMNS(kernel)                                                                    \
  (columns <= 256    ? NormGradKernel{HM_FUNCTION(kernel<kWarp, 2>), kThreads / kWarp, kThreads, 512} \
   : columns <= 1024 ? NormGradKernel{HM_FUNCTION(kernel<kWarp, 8>), kThreads / kWarp, kThreads, 256} \
   : columns <= 4096 ? NormGradKernel{HM_FUNCTION(kernel<kThreads, 4>), 1, kThreads, 256}             \
                     : NormGradKernel{HM_FUNCTION(kernel<kWideLanes, 2>), 1, kWideLanes, 128})
NormGradKernel layer_norm_grad_kernel(uint32_t columns) { return HM_GRAD_BY_COLUMNS(layer_norm_grad); }
NormGradKernel rms_norm_grad_kernel(uint32_t columns) { return HM_GRAD_BY_COLUMNS(rms_norm_grad); }
Function sum_blocks_function() { return HM_FUNCTION(sum_blocks); }
Function sum_two_blocks_function() { return HM_FUNCTION(sum_two_blocks); }
Function batch_norm_function() { return HM_FUNCTION(batch_norm); }
Function batch_norm_grad_function() { return HM_FUNCTION(batch_norm_grad); }
Function group_norm_function() { return HM_FUNCTION(group_norm); }
Function group_norm_grad_function() { return HM_FUNCTION(group_norm_grad); }
Function group_norm_sums_function() { return HM_FUNCTION(group_norm_sums); }

}  // namespace harmonics::cuda
