// Sliding windows over planes: im2col (patches), col2im (unpatches), pooling. One thread computes one result, in tap
// order.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

// Returns the offset in the plane of tap `tap` of window `window`; -1: out of range.
__device__ inline int32_t element_at(const WindowParameters& p, uint32_t tap, uint32_t window) {
  int32_t place = 0, wide = 1;
  for (uint32_t a = p.rank; a-- > 0;) {
    const int32_t at = static_cast<int32_t>(window % p.place[a]) * p.step[a] +
                       static_cast<int32_t>(tap % p.kernel[a]) * p.apart[a] - p.low[a];
    if (at < 0 || at >= p.size[a]) return -1;
    place += at * wide;
    wide *= p.size[a];
    window /= p.place[a];
    tap /= p.kernel[a];
  }
  return place;
}
// Returns the window whose tap `tap` is at `element`; -1: none.
__device__ inline int32_t window_at(const WindowParameters& p, uint32_t tap, uint32_t element) {
  int32_t place = 0, wide = 1;
  for (uint32_t a = p.rank; a-- > 0;) {
    const int32_t at =
        static_cast<int32_t>(element % p.size[a]) + p.low[a] - static_cast<int32_t>(tap % p.kernel[a]) * p.apart[a];
    if (at < 0 || at % p.step[a] != 0 || at / p.step[a] >= p.place[a]) return -1;
    place += at / p.step[a] * wide;
    wide *= p.place[a];
    element /= p.size[a];
    tap /= p.kernel[a];
  }
  return place;
}

template <typename T>
__global__ void patches(const T* x, T* columns, const __grid_constant__ WindowParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const uint32_t window = i % p.places, row = i / p.places;
  const int32_t at = element_at(p, row % p.taps, window);
  columns[i] = at < 0 ? static_cast<T>(p.fill) : x[static_cast<int64_t>(row / p.taps) * p.plane + at];
}

template <typename T>
__global__ void unpatches(const T* columns, T* x, const __grid_constant__ WindowParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const int64_t first = static_cast<int64_t>(i / p.plane) * p.taps;
  typename SumOf<T>::type sum = 0;
  for (uint32_t tap = 0; tap < p.taps; ++tap) {
    const int32_t window = window_at(p, tap, i % p.plane);
    if (window >= 0) sum += columns[(first + tap) * p.places + window];
  }
  x[i] = static_cast<T>(sum);
}

// NaN replaces numbers and stays; of equal elements the first is chosen.
__global__ void max_pool(const float* x, float* y, int32_t* indices, const __grid_constant__ WindowParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float* plane = x + static_cast<int64_t>(i / p.places) * p.plane;
  int32_t best = -1;
  for (uint32_t tap = 0; tap < p.taps; ++tap) {
    const int32_t at = element_at(p, tap, i % p.places);
    if (at < 0) continue;
    if (best < 0 || plane[at] > plane[best] || (plane[at] != plane[at] && plane[best] == plane[best])) best = at;
  }
  y[i] = plane[best];
  indices[i] = best;
}

// One block per plane. The windows of a run add in rounds: in each round, at most one window per element. So each
// element adds its windows in order.
__global__ void __launch_bounds__(kThreads)
    max_pool_grad(const int32_t* indices, const float* dy, float* dx, const __grid_constant__ WindowParameters p) {
  __shared__ uint32_t elements[kThreads];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.places;
  float* plane = dx + static_cast<int64_t>(blockIdx.x) * p.plane;
  for (uint32_t i = threadIdx.x; i < p.plane; i += kThreads) plane[i] = 0;
  for (uint32_t base = 0; base < p.places; base += kThreads) {
    const uint32_t window = base + threadIdx.x;
    const uint32_t at = window < p.places ? static_cast<uint32_t>(indices[first + window]) : p.plane;
    const float add = at < p.plane ? dy[first + window] : 0.0f;
    elements[threadIdx.x] = at;
    __syncthreads();
    uint32_t before = 0;
    if (at < p.plane)
      for (uint32_t i = 0; i < threadIdx.x; ++i) before += elements[i] == at;
    const uint32_t rounds = join_block<Largest>(before) + 1;
    for (uint32_t round = 0; round < rounds; ++round) {
      if (at < p.plane && before == round) plane[at] += add;
      __syncthreads();
    }
  }
}

// Returns the initial value of a reduction, which is the result of a window of padding.
template <typename T>
__device__ inline T start_of(Joining joining) {
  if (joining == Joining::add) return T(0);
  const bool largest = joining == Joining::largest;
  if (T(0.5) != T(0)) return static_cast<T>(largest ? -infinity() : infinity());
  const T least = T(-1) < T(0) ? static_cast<T>(uint64_t{1} << (8 * sizeof(T) - 1)) : T(0);
  return largest ? least : static_cast<T>(~static_cast<uint64_t>(least));
}
template <typename T>
__global__ void reduce_window(const T* x, T* y, const __grid_constant__ ReduceWindowParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  int32_t first[kMostRank] = {}, at[kMostRank] = {};
  uint32_t rest = i;
  for (uint32_t a = p.rank; a-- > 0;) {
    first[a] = static_cast<int32_t>(rest % p.place[a]) * p.step[a] - p.low[a];
    rest /= p.place[a];
  }
  T result = start_of<T>(p.joining);
  for (bool more = true; more;) {
    int64_t offset = 0;
    bool inside = true;
    for (uint32_t a = 0; a < p.rank; ++a) {
      const int32_t here = first[a] + at[a] * p.apart[a];
      inside = inside && here >= 0 && here < p.size[a];
      offset = offset * p.size[a] + here;
    }
    if (inside) result = joined<T>(result, x[offset], p.joining);
    more = false;
    for (uint32_t a = p.rank; a-- > 0 && !more;) {
      more = ++at[a] < p.window[a];
      if (!more) at[a] = 0;
    }
  }
  y[i] = result;
}

__device__ inline float share_of_window(const WindowParameters& p, uint32_t window) {
  if (p.include_padding) return 1.0f / static_cast<float>(p.taps);
  uint32_t inside = 1;
  for (uint32_t a = p.rank; a-- > 0;) {
    uint32_t n = 0;
    for (int32_t k = 0; k < p.kernel[a]; ++k) {
      const int32_t at = static_cast<int32_t>(window % p.place[a]) * p.step[a] + k * p.apart[a] - p.low[a];
      n += at >= 0 && at < p.size[a];
    }
    inside *= n;
    window /= p.place[a];
  }
  return 1.0f / static_cast<float>(inside);
}
__global__ void avg_pool(const float* x, float* y, const __grid_constant__ WindowParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const float* plane = x + static_cast<int64_t>(i / p.places) * p.plane;
  float sum = 0;
  for (uint32_t tap = 0; tap < p.taps; ++tap) {
    const int32_t at = element_at(p, tap, i % p.places);
    if (at >= 0) sum += plane[at];
  }
  y[i] = sum * share_of_window(p, i % p.places);
}
__global__ void avg_pool_grad(const float* dy, float* dx, const __grid_constant__ WindowParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const int64_t first = static_cast<int64_t>(i / p.plane) * p.places;
  float sum = 0;
  for (uint32_t tap = p.taps; tap-- > 0;) {
    const int32_t window = window_at(p, tap, i % p.plane);
    if (window >= 0) sum += dy[first + window] * share_of_window(p, static_cast<uint32_t>(window));
  }
  dx[i] = sum;
}

}  // namespace

Function reduce_window_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, reduce_window); }
Function patches_function(uint32_t element_bytes) { return HM_BY_WIDTH(patches); }
Function unpatches_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, unpatches); }
Function max_pool_function() { return HM_FUNCTION(max_pool); }
Function max_pool_grad_function() { return HM_FUNCTION(max_pool_grad); }
Function avg_pool_function() { return HM_FUNCTION(avg_pool); }
Function avg_pool_grad_function() { return HM_FUNCTION(avg_pool_grad); }

}  // namespace harmonics::cuda
