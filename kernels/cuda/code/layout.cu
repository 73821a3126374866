// Strided copies, and fill, iota, random.
#include "packs.hpp"

namespace harmonics::cuda {
namespace {

template <typename T>
__global__ void copy(const T* from, T* to, const __grid_constant__ CopyParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  int64_t at[2];
  places_of(p.walk, i, at);
  to[at[0]] = from[at[1]];
}

__global__ void copy_if_finite(const uint8_t* from, uint8_t* to, const float* number, CopyIfFiniteParameters p) {
  if (stays(number)) return;
  const uint64_t words = p.bytes / 4, threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = thread_number(); i < words; i += threads)
    reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  if (thread_number() < p.bytes % 4) to[words * 4 + thread_number()] = from[words * 4 + thread_number()];
}

// Transposes tiles of 64 x 64 in shared memory: loads along the rows of one side, stores along the rows of the other,
// four elements at a time if rows begin at multiples of four.
constexpr uint32_t kTileRow = kTransposedTile / 4, kTileStep = kThreads / kTileRow;

template <typename T>
__device__ inline void load_tile(T (&tile)[kTransposedTile][kTransposedTile + 1], const T* from, uint32_t first_row,
                                 uint32_t first, uint32_t rows, uint32_t n) {
  const uint32_t x = threadIdx.x % kTileRow * 4, y = threadIdx.x / kTileRow;
  if (n % 4 == 0) {
    Pack<T> kept[kTransposedTile / kTileStep];
    HM_UNROLL
    for (uint32_t j = 0; j < kTransposedTile / kTileStep; ++j) {
      const uint32_t r = first_row + y + j * kTileStep;
      if (r < rows && first + x < n)
        kept[j] = *reinterpret_cast<const Pack<T>*>(from + static_cast<int64_t>(r) * n + first + x);
    }
    HM_UNROLL
    for (uint32_t j = 0; j < kTransposedTile / kTileStep; ++j) {
      HM_UNROLL
      for (uint32_t c = 0; c < 4; ++c) tile[y + j * kTileStep][x + c] = kept[j].x[c];
    }
  } else {
    for (uint32_t j = y; j < kTransposedTile; j += kTileStep)
      for (uint32_t c = x; c < x + 4; ++c)
        if (first_row + j < rows && first + c < n)
          tile[j][c] = from[static_cast<int64_t>(first_row + j) * n + first + c];
  }
}
template <typename T>
__device__ inline void store_tile(const T (&tile)[kTransposedTile][kTransposedTile + 1], T* to, uint32_t first_row,
                                  uint32_t first, uint32_t rows, uint32_t n) {
  const uint32_t x = threadIdx.x % kTileRow * 4, y = threadIdx.x / kTileRow;
  if (n % 4 == 0) {
    if (first + x >= n) return;
    HM_UNROLL
    for (uint32_t j = 0; j < kTransposedTile / kTileStep; ++j) {
      const uint32_t r = first_row + y + j * kTileStep;
      Pack<T> v;
      HM_UNROLL
      for (uint32_t c = 0; c < 4; ++c) v.x[c] = tile[x + c][y + j * kTileStep];
      if (r < rows) store_whole(to + static_cast<int64_t>(r) * n + first + x, v);
    }
  } else {
    for (uint32_t j = y; j < kTransposedTile; j += kTileStep)
      for (uint32_t c = x; c < x + 4; ++c)
        if (first_row + j < rows && first + c < n) to[static_cast<int64_t>(first_row + j) * n + first + c] = tile[c][j];
  }
}
template <typename T>
__global__ void __launch_bounds__(kThreads) transpose(const T* from, T* to, TransposeParameters p) {
  __shared__ T tile[kTransposedTile][kTransposedTile + 1];
  const uint32_t row = blockIdx.y * kTransposedTile, column = blockIdx.x * kTransposedTile;
  const int64_t plane = static_cast<int64_t>(p.rows) * p.columns * blockIdx.z;
  load_tile(tile, from + plane, column, row, p.columns, p.rows);
  __syncthreads();
  store_tile(tile, to + plane, row, column, p.rows, p.columns);
}

template <typename T>
__global__ void fill(T* to, FillParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) to[i] = static_cast<T>(p.bits);
}

__global__ void iota(void* to, IotaParameters p) {
  const uint32_t i = thread_number();
  if (i >= p.count) return;
  const uint32_t value = i / p.inner % p.size;
  switch (p.dtype) {
    case HX_F32:
      static_cast<float*>(to)[i] = static_cast<float>(value);
      break;
    case HX_F64:
      static_cast<double*>(to)[i] = value;
      break;
    case HX_I32:
    case HX_U32:
      static_cast<uint32_t*>(to)[i] = value;
      break;
    case HX_I64:
    case HX_U64:
      static_cast<uint64_t*>(to)[i] = value;
      break;
    case HX_I16:
    case HX_U16:
      static_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(value);
      break;
    default:
      static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(value);
  }
}

__device__ inline uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Philox 4x32-10 as in harmonics/philox.hpp: numbers 4 t to 4 t + 3 are the words of counter {step, t}.
__global__ void random(const int64_t* counter, float* to, RandomParameters p) {
  const uint32_t t = thread_number();
  if (t * 4 >= p.count) return;
  const uint64_t key = splitmix(static_cast<uint64_t>(counter[0]) ^ splitmix(p.stream)),
                 step = static_cast<uint64_t>(counter[1]);
  uint32_t c[4] = {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), t, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(a);
  }
  for (uint32_t w = 0; w < 4 && t * 4 + w < p.count; ++w) to[t * 4 + w] = static_cast<float>(c[w] >> 8) * 0x1p-24f;
}

}  // namespace

Function copy_function(uint32_t element_bytes) {
  return element_bytes == 16 ? HM_FUNCTION(copy<Pack<uint32_t>>) : HM_BY_WIDTH(copy);
}
Function copy_if_finite_function() { return HM_FUNCTION(copy_if_finite); }
Function transpose_function(uint32_t element_bytes) { return HM_BY_WIDTH(transpose); }
Function fill_function(uint32_t element_bytes) { return HM_BY_WIDTH(fill); }
Function iota_function() { return HM_FUNCTION(iota); }
Function random_function() { return HM_FUNCTION(random); }

}  // namespace harmonics::cuda
