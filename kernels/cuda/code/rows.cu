// Row-wise kernels: softmax and its losses, layer_norm, rms_norm. A warp processes a short row, a block a long one.
// Rows are read once and stay in registers.
#include "packs.hpp"

namespace harmonics::cuda {
namespace {

// Threads beyond the last row participate in the reductions of their warp, but write nothing.
template <uint32_t kLanes, uint32_t kPacks>
struct RowOf : Row<kLanes, kPacks> {
  uint32_t r;
  bool exists;
  int64_t start;
  __device__ explicit RowOf(const RowsParameters& p) : Row<kLanes, kPacks>(p.columns) {
    const uint32_t number = Row<kLanes, kPacks>::number();
    exists = number < p.rows;
    r = exists ? number : p.rows - 1;
    start = static_cast<int64_t>(r) * p.columns;
  }
};

#define HM_BOUNDS __launch_bounds__(kLanes == kWarp ? kThreads : kLanes)

// Ignores NaN, which the exponentials propagate.
__device__ inline float largest_of(const Pack<float>& v, float most) {
  HM_UNROLL
  for (uint32_t c = 0; c < 4; ++c) most = Largest::join(v.x[c], most);
  return most;
}

template <uint32_t kLanes, uint32_t kPacks, bool kLogarithm>
__global__ void HM_BOUNDS softmax(const float* x, float* y, RowsParameters p) {
  const RowOf<kLanes, kPacks> row(p);
  Pack<float> kept[kPacks];
  float most = -infinity(), sum = 0;
  row.kept([&](uint32_t j, const Place& at) { kept[j] = read(x + row.start, at, -infinity()); });
  row.kept([&](uint32_t j, const Place&) { most = largest_of(kept[j], most); });
  row.rest([&](const Place& at) { most = largest_of(read(x + row.start, at, -infinity()), most); });
  const float shift = join_lanes<kLanes, Largest>(most);
  const auto add = [&](Pack<float>& v) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) {
      v.x[c] -= shift;
      const float e = expf(v.x[c]);
      sum += e;
      if (!kLogarithm) v.x[c] = e;
    }
  };
  row.kept([&](uint32_t j, const Place&) { add(kept[j]); });
  row.rest([&](const Place& at) {
    Pack<float> v = read(x + row.start, at, -infinity());
    add(v);
  });
  sum = join_lanes<kLanes, Sum>(sum);
  if (!row.exists) return;
  const float share = 1.0f / sum, log_sum = logf(sum);
  const auto put = [&](const Place& at, Pack<float> v) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) v.x[c] = kLogarithm ? v.x[c] - log_sum : v.x[c] * share;
    write(y + row.start, at, v);
  };
  row.kept([&](uint32_t j, const Place& at) { put(at, kept[j]); });
  row.rest([&](const Place& at) {
    Pack<float> v = read(x + row.start, at, -infinity());
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) v.x[c] = kLogarithm ? v.x[c] - shift : expf(v.x[c] - shift);
    put(at, v);
  });
}

template <uint32_t kLanes, uint32_t kPacks, bool kLogarithm>
__global__ void HM_BOUNDS softmax_grad(const float* y, const float* dy, float* dx, RowsParameters p) {
  const RowOf<kLanes, kPacks> row(p);
  Pack<float> results[kPacks], gradients[kPacks];
  float sum = 0;
  row.kept([&](uint32_t j, const Place& at) {
    results[j] = read(y + row.start, at, 0);
    gradients[j] = read(dy + row.start, at, 0);
  });
  const auto add = [&](const Pack<float>& v, const Pack<float>& d) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) sum += kLogarithm ? d.x[c] : v.x[c] * d.x[c];
  };
  row.kept([&](uint32_t j, const Place&) { add(results[j], gradients[j]); });
  row.rest([&](const Place& at) { add(read(y + row.start, at, 0), read(dy + row.start, at, 0)); });
  sum = join_lanes<kLanes, Sum>(sum);
  if (!row.exists) return;
  const auto put = [&](const Place& at, const Pack<float>& v, Pack<float> d) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) d.x[c] = kLogarithm ? d.x[c] - expf(v.x[c]) * sum : v.x[c] * (d.x[c] - sum);
    write(dx + row.start, at, d);
  };
  row.kept([&](uint32_t j, const Place& at) { put(at, results[j], gradients[j]); });
  row.rest([&](const Place& at) { put(at, read(y + row.start, at, 0), read(dy + row.start, at, 0)); });
}

// Online softmax: each thread sums exponentials relative to its running maximum, so a row of any length is read once. A
// label out of range has probability 0, so its loss is infinite. The loss is not computed from lse, so that large
// logits lose no precision.
template <uint32_t kLanes, uint32_t kPacks>
__global__ void HM_BOUNDS cross_entropy(const float* x, const void* labels, float* loss, float* lse, RowsParameters p) {
  const RowOf<kLanes, kPacks> row(p);
  float most = -infinity(), sum = 0;
  for (uint32_t j = 0; j * 4 * kLanes < row.n; j += kPacks) {
    Pack<float> v[kPacks];
    HM_UNROLL
    for (uint32_t i = 0; i < kPacks; ++i) v[i] = read(x + row.start, row.place(j + i), -infinity());
    float larger = most;
    HM_UNROLL
    for (uint32_t i = 0; i < kPacks; ++i) larger = largest_of(v[i], larger);
    if (larger > most) {
      sum *= expf(most - larger);
      most = larger;
    }
    const float shift = most == -infinity() ? 0.0f : most;
    HM_UNROLL
    for (uint32_t i = 0; i < kPacks; ++i) {
      HM_UNROLL
      for (uint32_t c = 0; c < 4; ++c) sum += expf(v[i].x[c] - shift);
    }
  }
  const float shift = join_lanes<kLanes, Largest>(most);
  const float log_sum = logf(join_lanes<kLanes, Sum>(sum * expf(most - shift)));
  if (!row.exists || row.lane != 0) return;
  const int64_t label = whole_at(labels, p.label_dtype, row.r);
  loss[row.r] = label >= 0 && label < row.n ? log_sum + (shift - x[row.start + label]) : infinity();
  lse[row.r] = log_sum + shift;
}

// Exponentials relative to lse are divided by their sum, which cancels the rounding error of lse.
template <uint32_t kLanes, uint32_t kPacks>
__global__ void HM_BOUNDS cross_entropy_grad(const float* x, const void* labels, const float* lse, const float* dloss,
                                             float* dx, RowsParameters p) {
  const RowOf<kLanes, kPacks> row(p);
  const int64_t label = whole_at(labels, p.label_dtype, row.r);
  Pack<float> kept[kPacks];
  row.kept([&](uint32_t j, const Place& at) { kept[j] = read(x + row.start, at, -infinity()); });
  const float shift = lse[row.r], dl = dloss[row.r];
  float sum = 0;
  const auto add = [&](Pack<float>& v) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) {
      v.x[c] = expf(v.x[c] - shift);
      sum += v.x[c];
    }
  };
  // The loads of the kept packs are in flight meanwhile.
  row.rest([&](const Place& at) {
    Pack<float> v = read(x + row.start, at, -infinity());
    add(v);
  });
  row.kept([&](uint32_t j, const Place&) { add(kept[j]); });
  const float share = 1.0f / join_lanes<kLanes, Sum>(sum);
  if (!row.exists) return;
  const auto put = [&](const Place& at, Pack<float> v) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) v.x[c] = (v.x[c] * share - (at.at(c) == label ? 1.0f : 0.0f)) * dl;
    write(dx + row.start, at, v);
  };
  row.kept([&](uint32_t j, const Place& at) { put(at, kept[j]); });
  row.rest([&](const Place& at) {
    Pack<float> v = read(x + row.start, at, -infinity());
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) v.x[c] = expf(v.x[c] - shift);
    put(at, v);
  });
}

template <uint32_t kLanes, uint32_t kPacks, bool kCentred>
__device__ inline void norm(const float* x, const float* gain, const float* bias, float* y, float* mean_out,
                            float* rstd_out, const RowsParameters& p) {
  const RowOf<kLanes, kPacks> row(p);
  const float count = static_cast<float>(row.n);
  Pack<float> kept[kPacks];
  row.kept([&](uint32_t j, const Place& at) { kept[j] = read(x + row.start, at, 0); });
  float mean = 0, more = 0, square = 0;
  if (kCentred) {
    const auto add = [&](const Pack<float>& v) {
      HM_UNROLL
      for (uint32_t c = 0; c < 4; ++c) mean += v.x[c];
    };
    row.kept([&](uint32_t j, const Place&) { add(kept[j]); });
    row.rest([&](const Place& at) { add(read(x + row.start, at, 0)); });
    mean = join_lanes<kLanes, Sum>(mean) / count;
  }
  const auto add = [&](const Place& at, const Pack<float>& from) {
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) {
      const float v = at.holds(c) ? from.x[c] - mean : 0.0f;
      square += v * v;
      if (kCentred) more += v;
    }
  };
  row.kept([&](uint32_t j, const Place& at) { add(at, kept[j]); });
  row.rest([&](const Place& at) { add(at, read(x + row.start, at, 0)); });
  square = join_lanes<kLanes, Sum>(square) / count;
  if (kCentred) more = join_lanes<kLanes, Sum>(more) / count;
  const float rstd = 1.0f / sqrtf((kCentred ? variance_of(square, more) : square) + p.epsilon);
  if (!row.exists) return;
  const auto put = [&](const Place& at, Pack<float> v) {
    const Pack<float> g = read(gain, at, 0), b = kCentred ? read(bias, at, 0) : g;
    HM_UNROLL
    for (uint32_t c = 0; c < 4; ++c) {
      v.x[c] = (v.x[c] - mean - more) * rstd * g.x[c];
      if (kCentred) v.x[c] += b.x[c];
    }
    write(y + row.start, at, v);
  };
  row.kept([&](uint32_t j, const Place& at) { put(at, kept[j]); });
  row.rest([&](const Place& at) { put(at, read(x + row.start, at, 0)); });
  if (row.lane != 0) return;
  if (kCentred) mean_out[row.r] = mean + more;
  rstd_out[row.r] = rstd;
}
template <uint32_t kLanes, uint32_t kPacks>
__global__ void HM_BOUNDS layer_norm(const float* x, const float* gain, const float* bias, float* y, float* mean,
                                     float* rstd, RowsParameters p) {
  norm<kLanes, kPacks, true>(x, gain, bias, y, mean, rstd, p);
}
template <uint32_t kLanes, uint32_t kPacks>
__global__ void HM_BOUNDS rms_norm(const float* x, const float* gain, float* y, float* rstd, RowsParameters p) {
  norm<kLanes, kPacks, false>(x, gain, nullptr, y, nullptr, rstd, p);
}

constexpr uint32_t kOfWarp = 4 * kWarp, kOfBlock = 4 * kThreads;  // elements, with one pack per thread

constexpr RowKernel by_warp(Function f) { return {f, kThreads / kWarp, kThreads}; }
constexpr RowKernel by_block(Function f) { return {f, 1, kThreads}; }
constexpr RowKernel by_wide_block(Function f) { return {f, 1, kWideLanes}; }

// Instance of a kernel that keeps one array of a row in registers: kernel<lanes, packs, ...>.
#define HM_BY_COLUMNS(kernel, ...)                                                                     \
  (columns <= 2 * kOfWarp     ? by_warp(HM_FUNCTION(kernel<kWarp, 2 __VA_OPT__(, ) __VA_ARGS__>))      \
   : columns <= 8 * kOfWarp   ? by_warp(HM_FUNCTION(kernel<kWarp, 8 __VA_OPT__(, ) __VA_ARGS__>))      \
   : columns <= 4 * kOfBlock  ? by_block(HM_FUNCTION(kernel<kThreads, 4 __VA_OPT__(, ) __VA_ARGS__>))  \
   : columns <= 16 * kOfBlock ? by_block(HM_FUNCTION(kernel<kThreads, 16 __VA_OPT__(, ) __VA_ARGS__>)) \
                              : by_wide_block(HM_FUNCTION(kernel<kWideLanes, 8 __VA_OPT__(, ) __VA_ARGS__>)))

}  // namespace

RowKernel softmax_kernel(uint32_t columns, bool logarithm) {
  return logarithm ? HM_BY_COLUMNS(softmax, true) : HM_BY_COLUMNS(softmax, false);
}
RowKernel cross_entropy_grad_kernel(uint32_t columns) { return HM_BY_COLUMNS(cross_entropy_grad); }
RowKernel layer_norm_kernel(uint32_t columns) { return HM_BY_COLUMNS(layer_norm); }
RowKernel rms_norm_kernel(uint32_t columns) { return HM_BY_COLUMNS(rms_norm); }
// Keeps two arrays of a row in registers, or none.
RowKernel softmax_grad_kernel(uint32_t columns, bool logarithm) {
  if (columns <= 8 * kOfWarp)
    return by_warp(logarithm ? HM_FUNCTION(softmax_grad<kWarp, 8, true>) : HM_FUNCTION(softmax_grad<kWarp, 8, false>));
  if (columns <= 8 * kOfBlock)
    return by_block(logarithm ? HM_FUNCTION(softmax_grad<kThreads, 8, true>)
                              : HM_FUNCTION(softmax_grad<kThreads, 8, false>));
  return by_wide_block(logarithm ? HM_FUNCTION(softmax_grad<kWideLanes, 4, true>)
                                 : HM_FUNCTION(softmax_grad<kWideLanes, 4, false>));
}
RowKernel cross_entropy_kernel(uint32_t columns) {
  return columns <= 8 * kOfWarp ? by_warp(HM_FUNCTION(cross_entropy<kWarp, 2>))
                                : by_block(HM_FUNCTION(cross_entropy<kThreads, 4>));
}

}  // namespace harmonics::cuda
