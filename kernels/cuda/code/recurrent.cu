// LSTM and GRU scans: a block computes one sample over all positions. In products with rows of the weight, a warp
// computes each row; in products with columns, groups of threads divide the terms.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

// The sample of a block. Threads exchange states through the workspace, with a barrier after each exchange.
struct Sample {
  const ScanParameters& p;
  int64_t row = blockIdx.x;

  __device__ explicit Sample(const ScanParameters& all) : p(all) {}
  // Returns the index in [samples, positions] of step `step`.
  __device__ int64_t place(uint32_t step) const {
    return row * p.positions + (p.reverse ? p.positions - 1 - step : step);
  }
  __device__ float* memory(float* workspace, uint32_t widths) const { return workspace + row * widths * p.width; }
};

__device__ inline float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

// sums[g] = row g * width + unit of the weight [gates * width, width] times h, in every lane of the warp.
template <uint32_t kGates>
__device__ inline void products(const float* weight, const float* h, uint32_t width, uint32_t unit,
                                float (&sums)[kGates]) {
  const uint32_t lane = threadIdx.x % kWarp, rounds = rounds_of(lane, width, kWarp);
  const float* from = weight + static_cast<int64_t>(unit) * width + lane;
  const int64_t apart = static_cast<int64_t>(width) * width;
  HM_UNROLL
  for (uint32_t g = 0; g < kGates; ++g) sums[g] = 0;
  HM_UNROLL_BY(4)
  for (uint32_t i = 0; i < rounds; ++i) {
    HM_UNROLL
    for (uint32_t g = 0; g < kGates; ++g) sums[g] += h[lane + i * kWarp] * from[g * apart + i * kWarp];
  }
  HM_UNROLL
  for (uint32_t g = 0; g < kGates; ++g) sums[g] = join_warp<Sum>(sums[g]);
}

// to[j] = (adds ? to[j] : 0) + sum of d[k] * weight[k, j] over k < depth. Groups of threads sum parts of the terms,
// which are added in order; `parts`: [groups, width].
__device__ inline void carry_back(const float* weight, const float* d, uint32_t depth, uint32_t width, float* parts,
                                  float* to, bool adds) {
  const uint32_t lanes = (width + kWarp - 1) / kWarp * kWarp, groups = lanes < blockDim.x ? blockDim.x / lanes : 1,
                 each = (depth + groups - 1) / groups, group = groups == 1 ? 0 : threadIdx.x / lanes;
  if (group < groups)
    for (uint32_t j = groups == 1 ? threadIdx.x : threadIdx.x % lanes; j < width;
         j += groups == 1 ? blockDim.x : lanes) {
      const uint32_t begin = group * each < depth ? group * each : depth,
                     end = begin + each < depth ? begin + each : depth;
      const float* from = weight + static_cast<int64_t>(begin) * width + j;
      float sum = 0;
      HM_UNROLL_BY(8)
      for (uint32_t k = begin; k < end; ++k, from += width) sum += d[k] * *from;
      parts[static_cast<int64_t>(group) * width + j] = sum;
    }
  __syncthreads();
  for (uint32_t j = threadIdx.x; j < width; j += blockDim.x) {
    float sum = 0;
    for (uint32_t g = 0; g < groups; ++g) sum += parts[static_cast<int64_t>(g) * width + j];
    to[j] = adds ? to[j] + sum : sum;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kScanThreads)
    lstm(const float* x, const float* weight, const float* h0, const float* c0, float* y, float* cells, float* gates,
         float* workspace, const __grid_constant__ ScanParameters p) {
  const Sample sample(p);
  const uint32_t n = p.width, lane = threadIdx.x % kWarp;
  float* h = sample.memory(workspace, kScanForward);
  for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) h[j] = h0[sample.row * n + j];
  __syncthreads();
  for (uint32_t step = 0; step < p.positions; ++step) {
    const int64_t at = sample.place(step), before = step == 0 ? 0 : sample.place(step - 1);
    const float *now = h + (step & 1) * n, *in = x + at * 4 * n;
    float *next = h + (1 - (step & 1)) * n, *kept = gates + at * 4 * n;
    for (uint32_t j = threadIdx.x / kWarp; j < n; j += blockDim.x / kWarp) {
      float sums[4];
      products(weight, now, n, j, sums);
      if (lane != 0) continue;
      const float i = logistic(in[j] + sums[0]), f = logistic(in[n + j] + sums[1]), g = tanhf(in[2 * n + j] + sums[2]),
                  o = logistic(in[3 * n + j] + sums[3]);
      const float c = f * (step == 0 ? c0[sample.row * n + j] : cells[before * n + j]) + i * g, state = o * tanhf(c);
      next[j] = y[at * n + j] = state;
      cells[at * n + j] = c;
      kept[j] = i, kept[n + j] = f, kept[2 * n + j] = g, kept[3 * n + j] = o;
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kScanThreads)
    lstm_grad(const float* weight, const float* cells, const float* gates, const float* c0, const float* dy,
              const float* more_cells, const float* more_gates, float* dx, float* dh0, float* dc0, float* workspace,
              const __grid_constant__ ScanParameters p) {
  const Sample sample(p);
  const uint32_t n = p.width;
  float *d = sample.memory(workspace, kScanBackward), *dh = d + 4 * n, *dc = dh + n, *parts = dc + n;
  for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) dh[j] = dc[j] = 0;
  __syncthreads();
  for (uint32_t step = p.positions; step-- > 0;) {
    const int64_t at = sample.place(step), before = step == 0 ? 0 : sample.place(step - 1);
    const float* kept = gates + at * 4 * n;
    for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) {
      const float i = kept[j], f = kept[n + j], g = kept[2 * n + j], o = kept[3 * n + j];
      const float here = dy[at * n + j] + dh[j], squashed = tanhf(cells[at * n + j]);
      float cell = here * o * (1 - squashed * squashed) + dc[j];
      if (p.given > 0) cell += more_cells[at * n + j];
      const float c = step == 0 ? c0[sample.row * n + j] : cells[before * n + j];
      float of[4] = {cell * g, cell * c, cell * i, here * squashed};
      if (p.given > 1)
        for (uint32_t g4 = 0; g4 < 4; ++g4) of[g4] += more_gates[at * 4 * n + g4 * n + j];
      of[0] *= i * (1 - i);
      of[1] *= f * (1 - f);
      of[2] *= 1 - g * g;
      of[3] *= o * (1 - o);
      for (uint32_t g4 = 0; g4 < 4; ++g4) d[g4 * n + j] = dx[at * 4 * n + g4 * n + j] = of[g4];
      dc[j] = cell * f;
    }
    __syncthreads();
    carry_back(weight, d, 4 * n, n, parts, dh, false);
  }
  for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) {
    dh0[sample.row * n + j] = dh[j];
    dc0[sample.row * n + j] = dc[j];
  }
}

__global__ void __launch_bounds__(kScanThreads)
    gru(const float* x, const float* weight, const float* bias, const float* h0, float* y, float* gates,
        float* workspace, const __grid_constant__ ScanParameters p) {
  const Sample sample(p);
  const uint32_t n = p.width, lane = threadIdx.x % kWarp;
  float* h = sample.memory(workspace, kScanForward);
  for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) h[j] = h0[sample.row * n + j];
  __syncthreads();
  for (uint32_t step = 0; step < p.positions; ++step) {
    const int64_t at = sample.place(step);
    const float *now = h + (step & 1) * n, *in = x + at * 3 * n;
    float *next = h + (1 - (step & 1)) * n, *kept = gates + at * 4 * n;
    for (uint32_t j = threadIdx.x / kWarp; j < n; j += blockDim.x / kWarp) {
      float sums[3];
      products(weight, now, n, j, sums);
      if (lane != 0) continue;
      const float past = sums[2] + bias[2 * n + j];
      const float r = logistic(in[j] + (sums[0] + bias[j])), z = logistic(in[n + j] + (sums[1] + bias[n + j])),
                  fresh = tanhf(in[2 * n + j] + r * past);
      next[j] = y[at * n + j] = fresh + z * (now[j] - fresh);
      kept[j] = r, kept[n + j] = z, kept[2 * n + j] = fresh, kept[3 * n + j] = past;
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kScanThreads)
    gru_grad(const float* weight, const float* y, const float* gates, const float* h0, const float* dy,
             const float* more_gates, float* dx, float* dpast, float* dh0, float* workspace,
             const __grid_constant__ ScanParameters p) {
  const Sample sample(p);
  const uint32_t n = p.width;
  float *d = sample.memory(workspace, kScanBackward), *dh = d + 3 * n, *parts = dh + n;
  for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) dh[j] = 0;
  __syncthreads();
  for (uint32_t step = p.positions; step-- > 0;) {
    const int64_t at = sample.place(step), before = step == 0 ? 0 : sample.place(step - 1);
    const float* kept = gates + at * 4 * n;
    float *to_x = dx + at * 3 * n, *to_past = dpast + at * 3 * n;
    for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) {
      const float r = kept[j], z = kept[n + j], fresh = kept[2 * n + j], past = kept[3 * n + j];
      const float here = dy[at * n + j] + dh[j], h = step == 0 ? h0[sample.row * n + j] : y[before * n + j];
      float more[4] = {0, 0, 0, 0};
      if (p.given > 0)
        for (uint32_t g = 0; g < 4; ++g) more[g] = more_gates[at * 4 * n + g * n + j];
      const float dfresh = (here * (1 - z) + more[2]) * (1 - fresh * fresh),
                  dz = (here * (h - fresh) + more[1]) * (z * (1 - z)), dr = (dfresh * past + more[0]) * (r * (1 - r)),
                  dq = dfresh * r + more[3];
      to_x[j] = dr, to_x[n + j] = dz, to_x[2 * n + j] = dfresh;
      d[j] = to_past[j] = dr;
      d[n + j] = to_past[n + j] = dz;
      d[2 * n + j] = to_past[2 * n + j] = dq;
      dh[j] = here * z;
    }
    __syncthreads();
    carry_back(weight, d, 3 * n, n, parts, dh, true);
  }
  for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) dh0[sample.row * n + j] = dh[j];
}

}  // namespace

Function lstm_function() { return HM_FUNCTION(lstm); }
Function lstm_grad_function() { return HM_FUNCTION(lstm_grad); }
Function gru_function() { return HM_FUNCTION(gru); }
Function gru_grad_function() { return HM_FUNCTION(gru_grad); }

}  // namespace harmonics::cuda
