// Gather and scatter. Out-of-range indices are clamped.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

template <typename T>
__global__ void gather(const T* x, const void* indices, T* y, GatherParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const uint32_t row = i / p.inner, at = index_at(indices, p.dtype, row % p.indices, p.size);
  y[i] = x[(static_cast<int64_t>(row / p.indices) * p.size + at) * p.inner + i % p.inner];
}

// links[k]: the next k with the same index; `indices` if there is none. links[indices + k]: whether k is the first with
// its index. With these linked lists each row adds its updates in index order, for any number of blocks.
__global__ void link(const void* indices, uint32_t* links, LinkParameters p) {
  const uint32_t k = thread_number();
  if (k >= p.indices) return;
  const uint32_t place = index_at(indices, p.dtype, k, p.size);
  uint32_t next = k + 1, before = k;
  while (next < p.indices && index_at(indices, p.dtype, next, p.size) != place) ++next;
  while (before > 0 && index_at(indices, p.dtype, before - 1, p.size) != place) --before;
  links[k] = next;
  links[p.indices + k] = before == 0;
}

template <typename T>
__global__ void add(const T* updates, const void* indices, const uint32_t* links, T* y, AddParameters p) {
  const uint32_t first = blockIdx.x;
  if (!links[p.indices + first]) return;
  const int64_t outer = blockIdx.y;
  T* to = y + (outer * p.size + index_at(indices, p.dtype, first, p.size)) * p.inner;
  for (uint32_t c = threadIdx.x; c < p.inner; c += kThreads) {
    T sum = to[c];
    for (uint32_t k = first; k < p.indices; k = links[k])
      sum = joined<T>(sum, updates[(outer * p.indices + k) * p.inner + c], p.joining);
    to[c] = sum;
  }
}

// y [size, inner]: each row is the sum of the updates with its index, in index order. A block computes kThreads columns
// of a row: it lists the matching updates of a run of indices, then adds them.
template <typename T>
__global__ void __launch_bounds__(kThreads) collect(const T* updates, const void* indices, T* y, AddParameters p) {
  constexpr uint32_t kAhead = 8;  // loads in flight
  __shared__ uint32_t mine[kThreads], listed[kThreads];
  const uint32_t column = blockIdx.y * kThreads + threadIdx.x;
  const bool adds = column < p.inner;
  T sum = 0;
  for (uint32_t base = 0; base < p.indices; base += kThreads) {
    const uint32_t k = base + threadIdx.x;
    const bool is_mine = k < p.indices && index_at(indices, p.dtype, k, p.size) == blockIdx.x;
    mine[threadIdx.x] = is_mine;
    const uint32_t found = join_block<Sum>(is_mine ? 1u : 0u);
    if (is_mine) {
      uint32_t before = 0;
      for (uint32_t i = 0; i < threadIdx.x; ++i) before += mine[i];
      listed[before] = k;
    }
    __syncthreads();
    if (!adds) continue;
    uint32_t i = 0;
    for (; i + kAhead <= found; i += kAhead) {
      T next[kAhead];
      for (uint32_t j = 0; j < kAhead; ++j) next[j] = updates[static_cast<int64_t>(listed[i + j]) * p.inner + column];
      for (uint32_t j = 0; j < kAhead; ++j) sum += next[j];
    }
    for (; i < found; ++i) sum += updates[static_cast<int64_t>(listed[i]) * p.inner + column];
  }
  if (adds) y[static_cast<int64_t>(blockIdx.x) * p.inner + column] = sum;
}

// Returns the row of a position: its batch, then its index on each axis.
__device__ inline uint32_t row_of(const void* indices, const PositionParameters& p, uint32_t position) {
  uint32_t row = position / p.places;
  for (uint32_t a = 0; a < p.k; ++a)
    row = row * p.sizes[a] + index_at(indices, p.dtype, position * p.k + a, p.sizes[a]);
  return row;
}
template <typename T>
__global__ void gather_nd(const T* x, const void* indices, T* y, const __grid_constant__ PositionParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) y[i] = x[static_cast<int64_t>(row_of(indices, p, i / p.inner)) * p.inner + i % p.inner];
}
__global__ void rows(const void* indices, uint32_t* numbers, const __grid_constant__ PositionParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) numbers[i] = row_of(indices, p, i);
}

// Returns the offset in the whole tensor of element i of the block.
__device__ inline int64_t block_place(const void* starts, const BlockParameters& p, uint32_t i) {
  int64_t place = 0, wide = 1;
  for (uint32_t a = p.rank; a-- > 0;) {
    const uint32_t rest = i / p.block[a];
    place += (i - rest * p.block[a] + index_at(starts, p.dtype, a, p.whole[a] - p.block[a] + 1)) * wide;
    wide *= p.whole[a];
    i = rest;
  }
  return place;
}
template <typename T>
__global__ void dynamic_slice(const T* x, const void* starts, T* y, const __grid_constant__ BlockParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) y[i] = x[block_place(starts, p, i)];
}
template <typename T>
__global__ void update_slice(const T* block, const void* starts, T* y, const __grid_constant__ BlockParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) y[block_place(starts, p, i)] = block[i];
}

// The order of top_k: descending, NaN first, ties by lower index.
template <typename T>
__device__ inline bool comes_first(T a, uint32_t i, T b, uint32_t j) {
  if (a != a || b != b) return a != a && (b == b || i < j);
  return a > b || (a == b && i < j);
}

// Each result is the best element after the previous one.
template <typename T>
__global__ void top(const T* x, T* values, int64_t* places, TopParameters p) {
  __shared__ T best_values[kThreads];
  __shared__ uint32_t best_places[kThreads];
  const T* row = x + static_cast<int64_t>(blockIdx.x) * p.size;
  const uint32_t me = threadIdx.x;
  uint32_t last = p.size;
  for (uint32_t t = 0; t < p.k; ++t) {
    uint32_t best = p.size;
    for (uint32_t j = me; j < p.size; j += kThreads)
      if ((last == p.size || comes_first(row[last], last, row[j], j)) &&
          (best == p.size || comes_first(row[j], j, row[best], best)))
        best = j;
    best_places[me] = best;
    if (best < p.size) best_values[me] = row[best];
    __syncthreads();
    for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
      if (me < half) {
        const uint32_t mine = best_places[me], other = best_places[me + half];
        if (other < p.size && (mine == p.size || comes_first(best_values[me + half], other, best_values[me], mine))) {
          best_places[me] = other;
          best_values[me] = best_values[me + half];
        }
      }
      __syncthreads();
    }
    last = best_places[0];
    if (me == 0) {
      values[static_cast<int64_t>(blockIdx.x) * p.k + t] = best_values[0];
      places[static_cast<int64_t>(blockIdx.x) * p.k + t] = last;
    }
    __syncthreads();
  }
}

}  // namespace

Function gather_function(uint32_t element_bytes) { return HM_BY_WIDTH(gather); }
Function gather_nd_function(uint32_t element_bytes) { return HM_BY_WIDTH(gather_nd); }
Function rows_function() { return HM_FUNCTION(rows); }
Function link_function() { return HM_FUNCTION(link); }
Function dynamic_slice_function(uint32_t element_bytes) { return HM_BY_WIDTH(dynamic_slice); }
Function update_slice_function(uint32_t element_bytes) { return HM_BY_WIDTH(update_slice); }
Function add_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, add); }
Function collect_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, collect); }
Function top_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, top); }

}  // namespace harmonics::cuda
