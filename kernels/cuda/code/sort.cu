// Stable merge sort along an axis: runs of indices are merged in pairs; each element finds its position by binary
// search.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

__device__ inline int64_t line_start(const SortParameters& p, uint32_t line) {
  return static_cast<int64_t>(line / p.inner) * p.size * p.inner + line % p.inner;
}

// NaN is the largest.
template <typename T>
__device__ inline bool before(T a, T b, bool descending) {
  return descending ? a > b || (a != a && b == b) : a < b || (b != b && a == a);
}

__global__ void begin_sort(uint32_t* order, SortParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) order[i] = i % p.size;
}

// The position of an element is its rank in both runs; of equal elements, those of the left run come first.
template <typename T>
__global__ void merge(const T* x, const uint32_t* order, uint32_t* merged, SortParameters p) {
  const uint32_t g = thread_number();
  if (g >= p.count) return;
  const uint32_t line = g / p.size, i = g - line * p.size;
  const T* elements = x + line_start(p, line);
  const auto at = [&](uint32_t index) { return elements[static_cast<int64_t>(index) * p.inner]; };
  order += static_cast<int64_t>(line) * p.size;
  merged += static_cast<int64_t>(line) * p.size;
  const uint32_t number = i / p.run, right = number & 1, first = (number - right) * p.run;
  const uint32_t opposite = right ? first : first + p.run, start = opposite < p.size ? opposite : p.size;
  uint32_t low = start, high = p.size - start < p.run ? p.size : start + p.run;
  const T a = at(order[i]);
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    const T b = at(order[middle]);
    if (right ? !before(a, b, p.descending) : before(b, a, p.descending))
      low = middle + 1;
    else
      high = middle;
  }
  merged[first + (i - number * p.run) + (low - start)] = order[i];
}

template <typename T>
__global__ void finish_sort(const T* x, const uint32_t* order, T* values, int64_t* indices, SortParameters p) {
  const uint32_t g = thread_number();
  if (g >= p.count) return;
  const uint32_t line = g / p.size;
  const int64_t first = line_start(p, line), to = first + static_cast<int64_t>(g - line * p.size) * p.inner;
  values[to] = x[first + static_cast<int64_t>(order[g]) * p.inner];
  indices[to] = order[g];
}

}  // namespace

Function begin_sort_function() { return HM_FUNCTION(begin_sort); }
Function merge_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, merge); }
Function finish_sort_function(uint32_t element_bytes) { return HM_BY_WIDTH(finish_sort); }

}  // namespace harmonics::cuda
