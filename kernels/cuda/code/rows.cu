// Row-wise kernels: softmax and its losses, layer_norm, rms_norm. A warp handles a short row, a block a long one.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kShortRow = 1024;

template <uint32_t kLanes>
struct Row {
  uint32_t number, lane;
  __device__ Row() : number(blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes), lane(threadIdx.x % kLanes) {}
};

// Ignores NaN, which comes back through the exponentials.
template <uint32_t kLanes>
__device__ inline float largest_of(const float* x, uint32_t n, uint32_t lane) {
  float most = -infinity();
  for (uint32_t i = lane; i < n; i += kLanes) most = Largest::join(x[i], most);
  return join_lanes<kLanes, Largest>(most);
}
template <uint32_t kLanes>
__device__ inline float sum_of_exponentials(const float* x, float shift, uint32_t n, uint32_t lane) {
  float sum = 0;
  for (uint32_t i = lane; i < n; i += kLanes) sum += expf(x[i] - shift);
  return join_lanes<kLanes, Sum>(sum);
}

// Threads beyond the last row take part in the reductions of their warp, but write nothing.
#define HM_ROW                                                                     \
  const Row<kLanes> row;                                                           \
  const uint32_t r = row.number < p.rows ? row.number : p.rows - 1, n = p.columns; \
  const int64_t start = static_cast<int64_t>(r) * n

template <uint32_t kLanes, bool kLogarithm>
__global__ void __launch_bounds__(kThreads) softmax(const float* x, float* y, RowsParameters p) {
  HM_ROW;
  const float shift = largest_of<kLanes>(x + start, n, row.lane),
              sum = sum_of_exponentials<kLanes>(x + start, shift, n, row.lane);
  if (row.number >= p.rows) return;
  if (kLogarithm) {
    const float log_sum = logf(sum);
    for (uint32_t i = row.lane; i < n; i += kLanes) y[start + i] = x[start + i] - shift - log_sum;
  } else {
    const float share = 1.0f / sum;
    for (uint32_t i = row.lane; i < n; i += kLanes) y[start + i] = expf(x[start + i] - shift) * share;
  }
}

template <uint32_t kLanes, bool kLogarithm>
__global__ void __launch_bounds__(kThreads) softmax_grad(const float* y, const float* dy, float* dx, RowsParameters p) {
  HM_ROW;
  float sum = 0;
  for (uint32_t i = row.lane; i < n; i += kLanes) sum += kLogarithm ? dy[start + i] : y[start + i] * dy[start + i];
  sum = join_lanes<kLanes, Sum>(sum);
  if (row.number >= p.rows) return;
  for (uint32_t i = row.lane; i < n; i += kLanes) {
    const float v = y[start + i], d = dy[start + i];
    dx[start + i] = kLogarithm ? d - expf(v) * sum : v * (d - sum);
  }
}

// A label outside the classes has probability 0: the loss is infinite. The loss is not computed from lse, so that large
// logits lose no precision.
template <uint32_t kLanes>
__global__ void __launch_bounds__(kThreads)
    cross_entropy(const float* x, const void* labels, float* loss, float* lse, RowsParameters p) {
  HM_ROW;
  const float shift = largest_of<kLanes>(x + start, n, row.lane);
  const float log_sum = logf(sum_of_exponentials<kLanes>(x + start, shift, n, row.lane));
  if (row.number >= p.rows || row.lane != 0) return;
  const int64_t label = whole_at(labels, p.label_dtype, r);
  loss[r] = label >= 0 && label < n ? log_sum + (shift - x[start + label]) : infinity();
  lse[r] = log_sum + shift;
}

// The rounding error of lse is common to a row: exponentials relative to it are divided by their own sum.
template <uint32_t kLanes>
__global__ void __launch_bounds__(kThreads) cross_entropy_grad(const float* x, const void* labels, const float* lse,
                                                               const float* dloss, float* dx, RowsParameters p) {
  HM_ROW;
  const int64_t label = whole_at(labels, p.label_dtype, r);
  const float shift = lse[r], dl = dloss[r];
  const float share = 1.0f / sum_of_exponentials<kLanes>(x + start, shift, n, row.lane);
  if (row.number >= p.rows) return;
  for (uint32_t i = row.lane; i < n; i += kLanes)
    dx[start + i] = (expf(x[start + i] - shift) * share - (i == label ? 1.0f : 0.0f)) * dl;
}

template <uint32_t kLanes, bool kCentred>
__device__ inline void norm(const float* x, const float* gain, const float* bias, float* y, float* mean_out,
                            float* rstd_out, const RowsParameters& p) {
  HM_ROW;
  const float count = static_cast<float>(n);
  float mean = 0, rest = 0, square = 0;
  if (kCentred) {
    for (uint32_t i = row.lane; i < n; i += kLanes) mean += x[start + i];
    mean = join_lanes<kLanes, Sum>(mean) / count;
  }
  for (uint32_t i = row.lane; i < n; i += kLanes) {
    const float v = x[start + i] - mean;
    square += v * v;
    if (kCentred) rest += v;
  }
  square = join_lanes<kLanes, Sum>(square) / count;
  if (kCentred) rest = join_lanes<kLanes, Sum>(rest) / count;
  const float rstd = 1.0f / sqrtf((kCentred ? variance_of(square, rest) : square) + p.epsilon);
  if (row.number >= p.rows) return;
  for (uint32_t i = row.lane; i < n; i += kLanes) {
    const float v = (x[start + i] - mean - rest) * rstd * gain[i];
    y[start + i] = kCentred ? v + bias[i] : v;
  }
  if (row.lane != 0) return;
  if (kCentred) mean_out[r] = mean + rest;
  rstd_out[r] = rstd;
}
template <uint32_t kLanes>
__global__ void __launch_bounds__(kThreads) layer_norm(const float* x, const float* gain, const float* bias, float* y,
                                                       float* mean, float* rstd, RowsParameters p) {
  norm<kLanes, true>(x, gain, bias, y, mean, rstd, p);
}
template <uint32_t kLanes>
__global__ void __launch_bounds__(kThreads)
    rms_norm(const float* x, const float* gain, float* y, float* rstd, RowsParameters p) {
  norm<kLanes, false>(x, gain, nullptr, y, nullptr, rstd, p);
}

}  // namespace

uint32_t rows_of_block(uint32_t columns) { return columns <= kShortRow ? kThreads / kWarp : 1; }

Function softmax_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(softmax<kWarp, false>) : HM_FUNCTION(softmax<kThreads, false>);
}
Function log_softmax_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(softmax<kWarp, true>) : HM_FUNCTION(softmax<kThreads, true>);
}
Function softmax_grad_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(softmax_grad<kWarp, false>) : HM_FUNCTION(softmax_grad<kThreads, false>);
}
Function log_softmax_grad_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(softmax_grad<kWarp, true>) : HM_FUNCTION(softmax_grad<kThreads, true>);
}
Function cross_entropy_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(cross_entropy<kWarp>) : HM_FUNCTION(cross_entropy<kThreads>);
}
Function cross_entropy_grad_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(cross_entropy_grad<kWarp>) : HM_FUNCTION(cross_entropy_grad<kThreads>);
}
Function layer_norm_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(layer_norm<kWarp>) : HM_FUNCTION(layer_norm<kThreads>);
}
Function rms_norm_function(uint32_t columns) {
  return columns <= kShortRow ? HM_FUNCTION(rms_norm<kWarp>) : HM_FUNCTION(rms_norm<kThreads>);
}

}  // namespace harmonics::cuda
