// Gradients of layer_norm and rms_norm; normalisation over batch and space or over groups of channels.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

// Block b takes rows b, b + blocks ..., and sums their share of dgain and dbias by column. Each thread owns columns in
// shared memory, so sums need no synchronisation.
template <bool kCentred>
__device__ inline void row_grad(const float* x, const float* gain, const float* means, const float* rstds,
                                const float* dy, float* dx, float* sums, const NormGradParameters& p) {
  __shared__ float dgain[kMostSummedColumns], dbias[kCentred ? kMostSummedColumns : 1];
  const uint32_t n = p.columns;
  const float count = static_cast<float>(n);
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    dgain[i] = 0;
    if (kCentred) dbias[i] = 0;
  }
  for (uint32_t r = blockIdx.x; r < p.rows; r += p.blocks) {
    const int64_t start = static_cast<int64_t>(r) * n;
    const float mean = kCentred ? means[r] : 0, rstd = rstds[r];
    float sum = 0, product = 0;
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
      const float d = dy[start + i], unit = (x[start + i] - mean) * rstd, dunit = d * gain[i];
      sum += dunit;
      product += dunit * unit;
      dgain[i] += d * unit;
      if (kCentred) dbias[i] += d;
    }
    const float along = kCentred ? join_block<Sum>(sum) / count : 0, across = join_block<Sum>(product) / count;
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
      const float unit = (x[start + i] - mean) * rstd, dunit = dy[start + i] * gain[i];
      dx[start + i] = rstd * (dunit - along - unit * across);
    }
  }
  const int64_t half = static_cast<int64_t>(p.blocks) * n, mine = static_cast<int64_t>(blockIdx.x) * n;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    sums[mine + i] = dgain[i];
    if (kCentred) sums[half + mine + i] = dbias[i];
  }
}
__global__ void __launch_bounds__(kThreads)
    layer_norm_grad(const float* x, const float* gain, const float* mean, const float* rstd, const float* dy, float* dx,
                    float* sums, NormGradParameters p) {
  row_grad<true>(x, gain, mean, rstd, dy, dx, sums, p);
}
__global__ void __launch_bounds__(kThreads)
    rms_norm_grad(const float* x, const float* gain, const float* rstd, const float* dy, float* dx, float* sums,
                  NormGradParameters p) {
  row_grad<false>(x, gain, nullptr, rstd, dy, dx, sums, p);
}

__device__ inline float sum_of_blocks(const float* sums, uint32_t column, const NormGradParameters& p) {
  float total = 0;
  for (uint32_t b = 0; b < p.blocks; ++b) total += sums[static_cast<int64_t>(b) * p.columns + column];
  return total;
}
__global__ void sum_blocks(const float* sums, float* dgain, NormGradParameters p) {
  const uint32_t i = thread_number();
  if (i < p.columns) dgain[i] = sum_of_blocks(sums, i, p);
}
__global__ void sum_two_blocks(const float* sums, float* dgain, float* dbias, NormGradParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.columns) return;
  dgain[i] = sum_of_blocks(sums, i, p);
  dbias[i] = sum_of_blocks(sums + static_cast<int64_t>(p.blocks) * p.columns, i, p);
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

// A group of a sample is contiguous.
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

Function layer_norm_grad_function() { return HM_FUNCTION(layer_norm_grad); }
Function rms_norm_grad_function() { return HM_FUNCTION(rms_norm_grad); }
Function sum_blocks_function() { return HM_FUNCTION(sum_blocks); }
Function sum_two_blocks_function() { return HM_FUNCTION(sum_two_blocks); }
Function batch_norm_function() { return HM_FUNCTION(batch_norm); }
Function batch_norm_grad_function() { return HM_FUNCTION(batch_norm_grad); }
Function group_norm_function() { return HM_FUNCTION(group_norm); }
Function group_norm_grad_function() { return HM_FUNCTION(group_norm_grad); }
Function group_norm_sums_function() { return HM_FUNCTION(group_norm_sums); }

}  // namespace harmonics::cuda
