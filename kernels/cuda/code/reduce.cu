// Reductions. The order of summation depends only on shapes: each thread combines equally spaced terms, then threads
// combine in pairs.
#include "packs.hpp"

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
// Maximum; NaN if any term is NaN. Of equal terms the first is kept.
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

// The terms [begin, end) of a chunk, in the order of the walk.
struct Terms {
  uint32_t begin, end;
  __device__ Terms(const ReduceParameters& p, uint32_t chunk)
      : begin(chunk * p.chunk), end(begin + p.chunk < p.terms ? begin + p.chunk : p.terms) {}
};

// One result and chunk per kLanes threads, a warp or a block.
template <uint32_t kLanes, typename T, typename To, typename Rule>
__global__ void __launch_bounds__(kThreads) reduce_rows(const T* x, To* y, const __grid_constant__ ReduceParameters p) {
  using S = typename SumOf<T>::type;
  constexpr uint32_t kOfPack = 4;
  const uint32_t lane = threadIdx.x % kLanes, number = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool exists = number < p.results * p.chunks;
  const uint32_t result = exists ? number / p.chunks : 0, chunk = exists ? number % p.chunks : 0;
  const int64_t from = place_of(p.kept, result);
  const Terms terms(p, chunk);
  uint32_t t = terms.begin;
  S sum = Rule::template start<S>();
  const bool side_by_side = p.reduced.rank == 1 && p.reduced.strides[0][0] == 1;
  if (side_by_side && (from + p.reduced.offsets[0] + t) % kOfPack == 0) {
    const auto* packs = reinterpret_cast<const Pack<T, kOfPack>*>(x + from + p.reduced.offsets[0] + t) + lane;
    const uint32_t rounds = rounds_of(lane, (terms.end - t) / kOfPack, kLanes);
    HM_UNROLL_BY(4)
    for (uint32_t i = 0; i < rounds; ++i) {
      const Pack<T, kOfPack> v = packs[static_cast<int64_t>(i) * kLanes];
      HM_UNROLL
      for (uint32_t c = 0; c < kOfPack; ++c) sum = Rule::join(sum, static_cast<S>(v.x[c]));
    }
    t += (terms.end - t) / kOfPack * kOfPack;
  }
  for (uint32_t i = t + lane; i < terms.end; i += kLanes)
    sum = Rule::join(sum, static_cast<S>(x[from + place_of(p.reduced, i)]));
  sum = join_lanes<kLanes, Rule>(sum);
  if (exists && lane == 0) y[number] = static_cast<To>(sum);
}

template <typename T, typename To, typename Rule>
__global__ void __launch_bounds__(kThreads)
    reduce_columns(const T* x, To* y, const __grid_constant__ ReduceParameters p) {
  using S = typename SumOf<T>::type;
  const uint32_t result = thread_number();
  if (result >= p.results) return;
  const int64_t from = place_of(p.kept, result);
  const Terms terms(p, blockIdx.y);
  S sum = Rule::template start<S>();
  if (p.reduced.rank == 1) {
    const int64_t apart = p.reduced.strides[0][0];
    const T* run = x + from + p.reduced.offsets[0] + terms.begin * apart;
    HM_UNROLL_BY(8)
    for (uint32_t t = terms.begin; t < terms.end; ++t, run += apart) sum = Rule::join(sum, static_cast<S>(*run));
  } else {
    for (uint32_t t = terms.begin; t < terms.end; ++t)
      sum = Rule::join(sum, static_cast<S>(x[from + place_of(p.reduced, t)]));
  }
  y[static_cast<int64_t>(blockIdx.y) * p.results + result] = static_cast<To>(sum);
}

// Combines x [terms, results] over terms. Lanes of a warp have adjacent results; each warp combines every eighth term.
template <typename T, typename To, typename Rule>
__global__ void __launch_bounds__(kThreads) join_chunks(const T* x, To* y, const __grid_constant__ ReduceParameters p) {
  using S = typename SumOf<T>::type;
  constexpr uint32_t kWarps = kThreads / kWarp;
  __shared__ S parts[kWarps][kWarp];
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, result = blockIdx.x * kWarp + lane;
  S sum = Rule::template start<S>();
  if (result < p.results) {
    const T* from = x + static_cast<int64_t>(warp) * p.results + result;
    const uint32_t rounds = rounds_of(warp, p.terms, kWarps);
    HM_UNROLL_BY(8)
    for (uint32_t i = 0; i < rounds; ++i)
      sum = Rule::join(sum, static_cast<S>(from[static_cast<int64_t>(i) * kWarps * p.results]));
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || result >= p.results) return;
  for (uint32_t w = 1; w < kWarps; ++w) sum = Rule::join(sum, parts[w][lane]);
  y[result] = static_cast<To>(sum);
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
      // Of equal values, and of NaNs, the lower index is first.
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

// Instance of a kernel for a reduction rule.
#define HM_BY_REDUCTION(...)                                        \
  (r == Reduction::sum       ? HM_FUNCTION(__VA_ARGS__, Add >)      \
   : r == Reduction::product ? HM_FUNCTION(__VA_ARGS__, Multiply >) \
   : r == Reduction::maximum ? HM_FUNCTION(__VA_ARGS__, Most >)     \
                             : HM_FUNCTION(__VA_ARGS__, Least >))
template <typename T, typename To>
Function rows_by(Reduction r) {
  return HM_BY_REDUCTION(reduce_rows < kThreads, T, To);
}
template <typename T, typename To>
Function short_rows_by(Reduction r) {
  return HM_BY_REDUCTION(reduce_rows < kWarp, T, To);
}
template <typename T, typename To>
Function columns_by(Reduction r) {
  return HM_BY_REDUCTION(reduce_columns < T, To);
}
template <typename T, typename To>
Function chunks_by(Reduction r) {
  return HM_BY_REDUCTION(join_chunks < T, To);
}

}  // namespace

// by<from, to>(r); null: unsupported types.
#define HM_BY_TYPES(by)                                                            \
  (from == to     ? (from == HX_F16    ? by<Half, Half>(r)                         \
                     : from == HX_BF16 ? by<BFloat16, BFloat16>(r)                 \
                     : from == HX_F32  ? by<float, float>(r)                       \
                     : from == HX_F64  ? by<double, double>(r)                     \
                     : from == HX_I32  ? by<int32_t, int32_t>(r)                   \
                     : from == HX_I64  ? by<int64_t, int64_t>(r)                   \
                     : from == HX_U8   ? by<uint8_t, uint8_t>(r)                   \
                                       : nullptr)                                    \
   : to == HX_F32 ? (from == HX_F16 ? by<Half, float>(r) : by<BFloat16, float>(r)) \
                  : (to == HX_F16 ? by<float, Half>(r) : by<float, BFloat16>(r)))
Function reduce_rows_function(uint32_t from, uint32_t to, Reduction r) { return HM_BY_TYPES(rows_by); }
Function reduce_short_rows_function(uint32_t from, uint32_t to, Reduction r) { return HM_BY_TYPES(short_rows_by); }
Function reduce_columns_function(uint32_t from, uint32_t to, Reduction r) { return HM_BY_TYPES(columns_by); }
Function join_chunks_function(uint32_t from, uint32_t to, Reduction r) { return HM_BY_TYPES(chunks_by); }
Function arg_extreme_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, arg_extreme); }
Function cumsum_function(uint32_t dtype) { return HM_BY_NUMBER(HM_FUNCTION, cumsum); }

}  // namespace harmonics::cuda
