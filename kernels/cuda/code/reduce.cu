// Reductions in an order that depends on shapes only: each thread takes terms at equal distances, then threads combine
// in pairs.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

template <typename T>
struct Ends;
template <>
struct Ends<float> {
  __device__ static float least() { return -infinity(); }
  __device__ static float most() { return infinity(); }
};
template <>
struct Ends<double> {
  __device__ static double least() { return -static_cast<double>(infinity()); }
  __device__ static double most() { return infinity(); }
};
template <>
struct Ends<int64_t> {
  __device__ static int64_t least() { return -0x7fffffffffffffffll - 1; }
  __device__ static int64_t most() { return 0x7fffffffffffffffll; }
};

struct Add : Sum {
  template <typename T>
  __device__ static T start() {
    return 0;
  }
};
struct Multiply {
  template <typename T>
  __device__ static T start() {
    return 1;
  }
  template <typename T>
  __device__ static T join(T a, T b) {
    return a * b;
  }
};
// NaN wins; on ties the first wins.
struct Most {
  template <typename T>
  __device__ static T start() {
    return Ends<T>::least();
  }
  template <typename T>
  __device__ static bool beats(T b, T a) {
    return a == a && (b != b || b > a);
  }
  template <typename T>
  __device__ static T join(T a, T b) {
    return beats(b, a) ? b : a;
  }
};
struct Least {
  template <typename T>
  __device__ static T start() {
    return Ends<T>::most();
  }
  template <typename T>
  __device__ static bool beats(T b, T a) {
    return a == a && (b != b || b < a);
  }
  template <typename T>
  __device__ static T join(T a, T b) {
    return beats(b, a) ? b : a;
  }
};

__device__ inline int64_t place_of(const Steps<1>& walk, uint32_t number) {
  int64_t at[1];
  places_of(walk, number, at);
  return at[0];
}

template <typename T, typename Rule>
__global__ void reduce_rows(const T* x, T* y, const __grid_constant__ ReduceParameters p) {
  using S = typename SumOf<T>::type;
  const uint32_t result = blockIdx.x / p.chunks, chunk = blockIdx.x % p.chunks;
  const int64_t from = place_of(p.kept, result);
  const uint32_t end = (chunk + 1) * p.chunk < p.terms ? (chunk + 1) * p.chunk : p.terms;
  S sum = Rule::template start<S>();
  for (uint32_t t = chunk * p.chunk + threadIdx.x; t < end; t += kThreads)
    sum = Rule::join(sum, static_cast<S>(x[from + place_of(p.reduced, t)]));
  sum = join_block<Rule>(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<T>(sum);
}

template <typename T, typename Rule>
__global__ void reduce_columns(const T* x, T* y, const __grid_constant__ ReduceParameters p) {
  using S = typename SumOf<T>::type;
  const uint32_t result = thread_number(), chunk = blockIdx.y;
  if (result >= p.results) return;
  const int64_t from = place_of(p.kept, result);
  const uint32_t end = (chunk + 1) * p.chunk < p.terms ? (chunk + 1) * p.chunk : p.terms;
  S sum = Rule::template start<S>();
  for (uint32_t t = chunk * p.chunk; t < end; ++t)
    sum = Rule::join(sum, static_cast<S>(x[from + place_of(p.reduced, t)]));
  y[static_cast<int64_t>(result) * p.chunks + chunk] = static_cast<T>(sum);
}

template <typename T>
__global__ void arg_extreme(const T* x, int64_t* y, LaneParameters p) {
  __shared__ T values[kThreads];
  __shared__ uint32_t places[kThreads];
  const uint32_t lane = blockIdx.x, me = threadIdx.x;
  const T* from = x + static_cast<int64_t>(lane / p.inner) * p.size * p.inner + lane % p.inner;
  const auto beats = [&](T b, T a) { return p.largest ? Most::beats(b, a) : Least::beats(b, a); };
  uint32_t best = p.size;
  for (uint32_t j = me; j < p.size; j += kThreads)
    if (best == p.size || beats(from[static_cast<int64_t>(j) * p.inner], from[static_cast<int64_t>(best) * p.inner]))
      best = j;
  places[me] = best;
  if (best < p.size) values[me] = from[static_cast<int64_t>(best) * p.inner];
  __syncthreads();
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    if (me < half && places[me + half] < p.size) {
      const uint32_t mine = places[me], other = places[me + half];
      const T a = values[me], b = values[me + half];
      // On ties, and between NaNs, the lower index wins.
      const bool alike = a == b || (a != a && b != b);
      if (mine == p.size || (alike ? other < mine : beats(b, a))) {
        places[me] = other;
        values[me] = b;
      }
    }
    __syncthreads();
  }
  if (me == 0) y[lane] = places[0];
}

template <typename T>
__global__ void cumsum(const T* x, T* y, LaneParameters p) {
  const uint32_t lane = thread_number();
  if (lane >= p.lanes) return;
  int64_t at = static_cast<int64_t>(lane / p.inner) * p.size * p.inner + lane % p.inner;
  typename SumOf<T>::type sum = 0;
  for (uint32_t j = 0; j < p.size; ++j, at += p.inner) {
    sum += x[at];
    y[at] = static_cast<T>(sum);
  }
}

template <typename T>
Function rows_by(Reduction r) {
  switch (r) {
    case Reduction::sum:
      return HM_FUNCTION(reduce_rows<T, Add>);
    case Reduction::product:
      return HM_FUNCTION(reduce_rows<T, Multiply>);
    case Reduction::maximum:
      return HM_FUNCTION(reduce_rows<T, Most>);
    default:
      return HM_FUNCTION(reduce_rows<T, Least>);
  }
}
template <typename T>
Function columns_by(Reduction r) {
  switch (r) {
    case Reduction::sum:
      return HM_FUNCTION(reduce_columns<T, Add>);
    case Reduction::product:
      return HM_FUNCTION(reduce_columns<T, Multiply>);
    case Reduction::maximum:
      return HM_FUNCTION(reduce_columns<T, Most>);
    default:
      return HM_FUNCTION(reduce_columns<T, Least>);
  }
}

}  // namespace

#define HM_BY_RULE(...) __VA_ARGS__(r)
Function reduce_rows_function(uint32_t dtype, Reduction r) { return HM_BY_NUMBER(HM_BY_RULE, rows_by); }
Function reduce_columns_function(uint32_t dtype, Reduction r) { return HM_BY_NUMBER(HM_BY_RULE, columns_by); }
Function arg_extreme_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, arg_extreme); }
Function cumsum_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, cumsum); }

}  // namespace harmonics::cuda
