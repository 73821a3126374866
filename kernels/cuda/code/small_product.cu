// f32 products that would not occupy the GPU with large tiles: blocks compute small tiles, and their warps divide the k
// dimension. The order of summation depends only on shapes.
#include "language.hpp"

namespace harmonics::cuda {
namespace {

struct alignas(16) Four {
  float x[4];
};

#ifdef HM_EMULATED
template <uint32_t kBytes>
inline void copy_async(float* to, const float* from, bool valid) {
  for (uint32_t i = 0; i < kBytes / 4; ++i) to[i] = valid ? from[i] : 0;
}
inline void end_group() {}
template <int kMost>
inline void await_groups() {}
#else
// Copies to shared memory asynchronously; writes zeros if not `valid`.
template <uint32_t kBytes>
__device__ inline void copy_async(float* to, const float* from, bool valid) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid ? 16 : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the last kMost groups are incomplete.
template <int kMost>
__device__ inline void await_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}
#endif

// The tile of a block: rows, columns, terms per stage of shared memory, stages, and the numbers of warps that divide
// rows and columns; the other warps divide the terms.
template <int rows, int columns, int deep, int stages, int row_warps, int column_warps, int lane_rows>
struct Tile {
  static constexpr int kRows = rows, kColumns = columns, kDeep = deep, kStages = stages, kRowWarps = row_warps,
                       kColumnWarps = column_warps;
  // Lanes of a warp are arranged in lane_rows rows and 4 columns. With 4 rows, the halves of a warp divide the terms.
  static constexpr int kLaneRows = lane_rows, kHalves = 8 / lane_rows;
  static constexpr int kSlices = static_cast<int>(kThreads / kWarp) / (kRowWarps * kColumnWarps) * kHalves;
  // Elements of a lane are spaced by the number of lanes.
  static constexpr int kEachRow = kRows / kRowWarps / kLaneRows, kEachColumn = kColumns / kColumnWarps / 4;
  static constexpr int kPitch = kDeep + 4;  // avoids bank conflicts
  static constexpr int kFloats = kStages * (kRows + kColumns) * kPitch;
  static_assert(kSlices * (kRows + 1) * kColumns <= kFloats && kFloats % 4 == 0 && kFloats <= 12 * 1024);
};
using Tile16 = Tile<16, 16, 64, 4, 1, 1, 4>;
using Tile32 = Tile<32, 32, 32, 4, 1, 1, 8>;
using Tile64x32 = Tile<64, 32, 32, 3, 2, 1, 8>;
using Tile64 = Tile<64, 64, 16, 4, 2, 2, 8>;

// Loads elements [first, first + kRows) x [d, d + kDeep) of an operand to shared memory, row by row; zeros out of
// range.
template <typename T, int kRows>
__device__ inline void load(float* to, const float* from, const SmallOperand& o, uint32_t first, uint32_t d,
                            uint32_t size, uint32_t k) {
  const uint32_t me = threadIdx.x;
  if (o.term == 1 && o.wide) {
    constexpr uint32_t kFours = T::kDeep / 4;
    for (uint32_t e = me; e < kRows * kFours; e += kThreads) {
      const uint32_t r = e / kFours, t = e % kFours * 4;
      const bool valid = first + r < size && d + t < k;
      copy_async<16>(to + r * T::kPitch + t, valid ? from + (first + r) * o.row + (d + t) : from, valid);
    }
    return;
  }
  for (uint32_t e = me; e < kRows * T::kDeep; e += kThreads) {
    // Coalesced: adjacent threads read adjacent elements.
    const uint32_t r = o.term == 1 ? e / T::kDeep : e % kRows, t = o.term == 1 ? e % T::kDeep : e / kRows;
    const bool valid = first + r < size && d + t < k;
    copy_async<4>(to + r * T::kPitch + t, valid ? from + (first + r) * o.row + (d + t) * o.term : from, valid);
  }
}

__device__ inline Four four_at(const float* from) { return *reinterpret_cast<const Four*>(from); }

template <typename T, SmallSum kSum>
__global__ void __launch_bounds__(kThreads, 2)
    small_product(const float* a, const float* b, float* c, const float* bias, float* sums,
                  __grid_constant__ const SmallProductParameters p) {
  __shared__ Four shared[T::kFloats / 4];
  auto* tiles = reinterpret_cast<float*>(shared);
  constexpr uint32_t kStage = (T::kRows + T::kColumns) * T::kPitch;
  const uint32_t row = blockIdx.y * T::kRows, column = blockIdx.x * T::kColumns;
  const uint32_t part = p.parts > 1 ? blockIdx.z : 0, from = part * p.terms;
  a += blockIdx.z * p.a.batch + from * p.a.term, b += blockIdx.z * p.b.batch + from * p.b.term;
  const uint32_t k = p.k - from < p.terms ? p.k - from : p.terms;
  const auto fetch = [&](uint32_t chunk) {
    float* to = tiles + chunk % T::kStages * kStage;
    load<T, T::kRows>(to, a, p.a, row, chunk * T::kDeep, p.m, k);
    load<T, T::kColumns>(to + T::kRows * T::kPitch, b, p.b, column, chunk * T::kDeep, p.n, k);
  };
  const uint32_t chunks = (k + T::kDeep - 1) / T::kDeep;
  for (uint32_t i = 0; i + 1 < T::kStages; ++i) {
    if (i < chunks) fetch(i);
    end_group();
  }
  // Slices of the terms are assigned to warps and their halves.
  constexpr uint32_t kWarpSlices = T::kSlices / T::kHalves;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, lane_row = lane / 4 % T::kLaneRows,
                 lane_column = lane % 4, place = warp / kWarpSlices,
                 slice = warp % kWarpSlices * T::kHalves + lane / (4 * T::kLaneRows);
  const uint32_t my_row = place / T::kColumnWarps * (T::kRows / T::kRowWarps) + lane_row,
                 my_column = place % T::kColumnWarps * (T::kColumns / T::kColumnWarps) + lane_column;
  constexpr bool kOfA = kSum == SmallSum::a, kOfB = kSum == SmallSum::b;
  float total[T::kEachRow][T::kEachColumn] = {}, beside[kOfA ? T::kEachRow : kOfB ? T::kEachColumn : 1] = {};
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    await_groups<T::kStages - 2>();
    __syncthreads();  // the chunk has arrived, and the next stage to write has been read
    if (chunk + T::kStages - 1 < chunks) fetch(chunk + T::kStages - 1);
    end_group();
    const float* left = tiles + chunk % T::kStages * kStage + my_row * T::kPitch;
    const float* right = tiles + chunk % T::kStages * kStage + (T::kRows + my_column) * T::kPitch;
#pragma unroll
    for (uint32_t q = 0; q < T::kDeep / 4; q += T::kSlices) {
      const uint32_t t = (q + slice) * 4;
      Four x[T::kEachRow], y[T::kEachColumn];
#pragma unroll
      for (int i = 0; i < T::kEachRow; ++i) x[i] = four_at(left + i * T::kLaneRows * T::kPitch + t);
#pragma unroll
      for (int j = 0; j < T::kEachColumn; ++j) y[j] = four_at(right + j * 4 * T::kPitch + t);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int i = 0; i < T::kEachRow; ++i)
#pragma unroll
          for (int j = 0; j < T::kEachColumn; ++j) total[i][j] = fmaf(x[i].x[e], y[j].x[e], total[i][j]);
        if constexpr (kOfA)
#pragma unroll
          for (int i = 0; i < T::kEachRow; ++i) beside[i] += x[i].x[e];
        if constexpr (kOfB)
#pragma unroll
          for (int j = 0; j < T::kEachColumn; ++j) beside[j] += y[j].x[e];
      }
    }
  }
  await_groups<0>();
  __syncthreads();  // the stages have been read; their memory is reused for the sums of the slices
  float* of_slice = tiles + slice * T::kRows * T::kColumns;
#pragma unroll
  for (int i = 0; i < T::kEachRow; ++i)
#pragma unroll
    for (int j = 0; j < T::kEachColumn; ++j)
      of_slice[(my_row + i * T::kLaneRows) * T::kColumns + my_column + j * 4] = total[i][j];
  float* beside_all = tiles + T::kSlices * T::kRows * T::kColumns;
  if constexpr (kOfA)
    if (lane_column == 0 && place % T::kColumnWarps == 0)
#pragma unroll
      for (int i = 0; i < T::kEachRow; ++i) beside_all[slice * T::kRows + my_row + i * T::kLaneRows] = beside[i];
  if constexpr (kOfB)
    if (lane_row == 0 && place / T::kColumnWarps == 0)
#pragma unroll
      for (int j = 0; j < T::kEachColumn; ++j) beside_all[slice * T::kColumns + my_column + j * 4] = beside[j];
  __syncthreads();
  c += static_cast<int64_t>(blockIdx.z) * p.m * p.n;
  for (uint32_t e = threadIdx.x; e < T::kRows * T::kColumns; e += kThreads) {
    const uint32_t r = row + e / T::kColumns, q = column + e % T::kColumns;
    if (r >= p.m || q >= p.n) continue;
    float v = tiles[e];
    for (uint32_t s = 1; s < T::kSlices; ++s) v += tiles[s * T::kRows * T::kColumns + e];
    if (p.has_bias) v += bias[q];
    if (p.relu) v = v != v || v > 0 ? v : 0;
    c[static_cast<int64_t>(r) * p.n + q] = v;
  }
  constexpr uint32_t kBeside = kOfA ? T::kRows : T::kColumns;
  const bool first = kOfA ? blockIdx.x == 0 : blockIdx.y == 0;
  const uint32_t at = (kOfA ? row : column) + threadIdx.x, size = kOfA ? p.m : p.n;
  if ((kOfA || kOfB) && first && threadIdx.x < kBeside && at < size) {
    float v = beside_all[threadIdx.x];
    for (uint32_t s = 1; s < T::kSlices; ++s) v += beside_all[s * kBeside + threadIdx.x];
    sums[part * size + at] = v;
  }
}

__global__ void small_join(const float* of_c, const float* of_sums, const float* bias, float* c, float* sums,
                           SmallJoinParameters p) {
  const uint32_t i = thread_number();
  if (i < p.count) {
    float v = of_c[i];
    for (uint32_t part = 1; part < p.parts; ++part) v += of_c[part * p.count + i];
    if (p.has_bias) v += bias[i % p.columns];
    if (p.relu) v = v != v || v > 0 ? v : 0;
    c[i] = v;
  } else if (i - p.count < p.beside) {
    const uint32_t at = i - p.count;
    float v = of_sums[at];
    for (uint32_t part = 1; part < p.parts; ++part) v += of_sums[part * p.beside + at];
    sums[at] = v;
  }
}

template <typename T>
Function with_sum(SmallSum sum) {
  return sum == SmallSum::a   ? HM_FUNCTION(small_product<T, SmallSum::a>)
         : sum == SmallSum::b ? HM_FUNCTION(small_product<T, SmallSum::b>)
                              : HM_FUNCTION(small_product<T, SmallSum::none>);
}

}  // namespace

Function small_product_function(uint32_t tile, SmallSum sum) {
  return tile == 0   ? with_sum<Tile16>(sum)
         : tile == 1 ? with_sum<Tile32>(sum)
         : tile == 2 ? with_sum<Tile64x32>(sum)
                     : with_sum<Tile64>(sum);
}
Function small_join_function() { return HM_FUNCTION(small_join); }

}  // namespace harmonics::cuda
