// Pooling over one or two spatial axes; a single axis is treated as a plane of height 1.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct PoolContext {
  int64_t planes, height, width, out_height, out_width;
  int64_t kernel[2], strides[2], low[2], dilation[2];
  uint32_t parts, index_dtype;
  bool include_padding;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Kernel steps [begin, end) inside the plane for one output position, and the plane's coordinate at step 0.
struct Window {
  int64_t start, begin, end;
};
HM_INLINE Window window(const PoolContext& c, int axis, int64_t place, int64_t size) {
  const int64_t start = place * c.strides[axis] - c.low[axis], step = c.dilation[axis];
  Window w{start, 0, c.kernel[axis]};
  while (w.begin < w.end && start + w.begin * step < 0) ++w.begin;
  while (w.end > w.begin && start + (w.end - 1) * step >= size) --w.end;
  return w;
}

// Output positions [begin, end) of a row whose windows are horizontally inside the plane.
HM_INLINE Range inside(const PoolContext& c) {
  const int64_t reach = (c.kernel[1] - 1) * c.dilation[1], step = c.strides[1];
  int64_t begin = (c.low[1] + step - 1) / step;
  int64_t end = c.width + c.low[1] - reach <= 0 ? 0 : (c.width + c.low[1] - reach - 1) / step + 1;
  if (end > c.out_width) end = c.out_width;
  if (begin > end) begin = end;
  return {begin, end};
}

// Whether v replaces the earlier maximum. NaN replaces numbers and stays; the first of equal values stays.
HM_INLINE bool takes_over(float v, float most) { return v > most || (v != v && most == most); }

void max_place(const PoolContext& c, const float* x, const Window& rows, int64_t j, float* y, int32_t* index) {
  const Window columns = window(c, 1, j, c.width);
  int64_t best = (rows.start + rows.begin * c.dilation[0]) * c.width + columns.start + columns.begin * c.dilation[1];
  for (int64_t a = rows.begin; a < rows.end; ++a)
    for (int64_t b = columns.begin; b < columns.end; ++b) {
      const int64_t at = (rows.start + a * c.dilation[0]) * c.width + columns.start + b * c.dilation[1];
      if (takes_over(x[at], x[best])) best = at;
    }
  *y = x[best];
  *index = static_cast<int32_t>(best);
}

// Loads n floats with stride `step`; `left` floats from p may be read.
HM_INLINE vf load_apart(const float* p, int64_t step, int64_t n, int64_t left) {
  if (step == 1) return load_some(p, n);
#if defined(__AVX512F__)
  (void)left;
  const __m512i places = (__m512i)(lanes() * static_cast<int32_t>(step));
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), static_cast<__mmask16>((1u << n) - 1), places, p, 4);
#else
  if (step == 2 && left >= 2 * kWidth) {
#if defined(__AVX2__)
    const __m256 halves = _mm256_shuffle_ps(load(p), load(p + kWidth), 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xd8));
#else
    return _mm_shuffle_ps(load(p), load(p + kWidth), 0x88);
#endif
  }
  vf v{};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i * step];
  return v;
#endif
}

// Computes n <= kWidth adjacent positions whose windows are horizontally inside the plane.
void max_places(const PoolContext& c, const float* x, const Window& rows, int64_t j, int64_t n, float* y,
                int32_t* indices) {
  const int64_t step = c.strides[1], size = c.height * c.width;
  vf most{};
  vi best{};
  for (int64_t a = rows.begin; a < rows.end; ++a)
    for (int64_t b = 0; b < c.kernel[1]; ++b) {
      const int64_t at = (rows.start + a * c.dilation[0]) * c.width + j * step - c.low[1] + b * c.dilation[1];
      const vf v = load_apart(x + at, step, n, size - at);
      vi take = (v > most) | ((v != v) & (most == most));
      if (a == rows.begin && b == 0) take = splat_int(-1);
      most = choose(take, v, most);
      best = take ? lanes() * static_cast<int32_t>(step) + static_cast<int32_t>(at) : best;
    }
  store_some(y, most, n);
  store_some(reinterpret_cast<float*>(indices), as_float(best), n);
}

void max_plane(const PoolContext& c, const float* x, float* y, int32_t* indices) {
  const Range middle = inside(c);
  for (int64_t i = 0; i < c.out_height; ++i, y += c.out_width, indices += c.out_width) {
    const Window rows = window(c, 0, i, c.height);
    for (int64_t j = 0; j < middle.begin; ++j) max_place(c, x, rows, j, y + j, indices + j);
    for (int64_t j = middle.begin; j < middle.end; j += kWidth)
      max_places(c, x, rows, j, lanes_at(j, middle.end), y + j, indices + j);
    for (int64_t j = middle.end; j < c.out_width; ++j) max_place(c, x, rows, j, y + j, indices + j);
  }
}

HM_INLINE float share_of_window(const PoolContext& c, const Window& rows, const Window& columns) {
  const int64_t n =
      c.include_padding ? c.kernel[0] * c.kernel[1] : (rows.end - rows.begin) * (columns.end - columns.begin);
  return 1.0f / static_cast<float>(n);
}

void mean_row(const PoolContext& c, const float* x, int64_t i, float* y) {
  const Window rows = window(c, 0, i, c.height);
  const Range middle = inside(c);
  for (int64_t j = 0; j < c.out_width; ++j) y[j] = 0;
  for (int64_t a = rows.begin; a < rows.end; ++a)
    for (int64_t b = 0; b < c.kernel[1]; ++b) {
      const float* from = x + (rows.start + a * c.dilation[0]) * c.width - c.low[1] + b * c.dilation[1];
#pragma GCC ivdep
      for (int64_t j = middle.begin; j < middle.end; ++j) y[j] += from[j * c.strides[1]];
    }
  const float whole = share_of_window(c, rows, {0, 0, c.kernel[1]});
  for (int64_t j = middle.begin; j < middle.end; ++j) y[j] *= whole;
  for (int64_t j = 0; j < c.out_width; ++j) {
    if (j == middle.begin && middle.end > j) j = middle.end;
    if (j == c.out_width) break;
    const Window columns = window(c, 1, j, c.width);
    for (int64_t a = rows.begin; a < rows.end; ++a)
      for (int64_t b = columns.begin; b < columns.end; ++b)
        y[j] += x[(rows.start + a * c.dilation[0]) * c.width + columns.start + b * c.dilation[1]];
    y[j] *= share_of_window(c, rows, columns);
  }
}

}  // namespace

// x -> y, indices
void max_pool(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PoolContext*>(context);
  const Range planes = share(c.planes, c.parts, part);
  const int64_t in = c.height * c.width, out = c.out_height * c.out_width;
  for (int64_t p = planes.begin; p < planes.end; ++p)
    max_plane(c, static_cast<const float*>(buffers[0]) + p * in, static_cast<float*>(buffers[1]) + p * out,
              static_cast<int32_t*>(buffers[2]) + p * out);
}

// indices, dy -> dx
void max_pool_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PoolContext*>(context);
  const Range planes = share(c.planes, c.parts, part);
  const int64_t in = c.height * c.width, out = c.out_height * c.out_width;
  for (int64_t p = planes.begin; p < planes.end; ++p) {
    const int32_t* indices = static_cast<const int32_t*>(buffers[0]) + p * out;
    const float* dy = static_cast<const float*>(buffers[1]) + p * out;
    float* dx = static_cast<float*>(buffers[2]) + p * in;
    for (int64_t i = 0; i < in; ++i) dx[i] = 0;
    for (int64_t i = 0; i < out; ++i)
      if (indices[i] >= 0 && indices[i] < in) dx[indices[i]] += dy[i];
  }
}

void avg_pool(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PoolContext*>(context);
  const Range planes = share(c.planes, c.parts, part);
  const int64_t in = c.height * c.width, out = c.out_height * c.out_width;
  for (int64_t p = planes.begin; p < planes.end; ++p) {
    const float* x = static_cast<const float*>(buffers[0]) + p * in;
    float* y = static_cast<float*>(buffers[1]) + p * out;
    for (int64_t i = 0; i < c.out_height; ++i, y += c.out_width) mean_row(c, x, i, y);
  }
}

// dy -> dx
void avg_pool_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PoolContext*>(context);
  const Range planes = share(c.planes, c.parts, part);
  const int64_t in = c.height * c.width, out = c.out_height * c.out_width;
  for (int64_t p = planes.begin; p < planes.end; ++p) {
    const float* dy = static_cast<const float*>(buffers[0]) + p * out;
    float* dx = static_cast<float*>(buffers[1]) + p * in;
    for (int64_t i = 0; i < in; ++i) dx[i] = 0;
    for (int64_t i = 0; i < c.out_height; ++i) {
      const Window rows = window(c, 0, i, c.height);
      for (int64_t j = 0; j < c.out_width; ++j) {
        const Window columns = window(c, 1, j, c.width);
        const float each = dy[i * c.out_width + j] * share_of_window(c, rows, columns);
        for (int64_t a = rows.begin; a < rows.end; ++a)
          for (int64_t b = columns.begin; b < columns.end; ++b)
            dx[(rows.start + a * c.dilation[0]) * c.width + columns.start + b * c.dilation[1]] += each;
      }
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(max_pool)
HM_VECTOR_CODE(max_pool_grad)
HM_VECTOR_CODE(avg_pool)
HM_VECTOR_CODE(avg_pool_grad)

namespace harmonics::cpu {
namespace {

// Reads the attributes. `x`, `y`: types of the input and the result of the pooling. False: more than two spatial axes.
bool fill(const Site& site, const hx_type& x, const hx_type& y, PoolContext& c) {
  if (x.rank < 3 || x.rank > 4 || y.rank != x.rank) return false;
  const uint32_t spatial = x.rank - 2, skip = 2 - spatial;
  const auto read = [&](const char* name, int64_t(&to)[2], int64_t otherwise) {
    const auto values = site.integers(name);
    to[0] = otherwise;
    for (uint32_t i = 0; i < spatial; ++i) to[skip + i] = values.empty() ? otherwise : values[i];
  };
  read("kernel", c.kernel, 1);
  read("strides", c.strides, 1);
  read("padding_low", c.low, 0);
  read("dilation", c.dilation, 1);
  if (skip) c.kernel[0] = c.strides[0] = c.dilation[0] = 1, c.low[0] = 0;
  c.planes = x.dims[0] * x.dims[1];
  c.height = spatial == 2 ? x.dims[2] : 1;
  c.width = x.dims[x.rank - 1];
  c.out_height = spatial == 2 ? y.dims[2] : 1;
  c.out_width = y.dims[y.rank - 1];
  c.include_padding = site.flag("count_include_pad");
  const double steps = static_cast<double>(count(y) * c.kernel[0] * c.kernel[1]);
  c.parts = parts_for(0.4 * steps + 0.1 * static_cast<double>(count(x)), c.planes);
  return true;
}

bool plan_pool(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<PoolContext>();
  if (site.op() == "max_pool") {
    if (!is_f32(site.in(0)) || site.out(1).dtype != HX_I32 || !fill(site, site.in(0), site.out(), *c)) return false;
    answer(out, std::move(c), chosen::max_pool(), "max pool");
  } else if (site.op() == "max_pool_grad") {
    if (site.in(0).dtype != HX_I32 || !is_f32(site.in(1)) || !fill(site, site.out(), site.in(1), *c)) return false;
    answer(out, std::move(c), chosen::max_pool_grad(), "max pool");
  } else {
    const bool gradient = site.op() == "avg_pool_grad";
    if (!site.all_f32() || !fill(site, gradient ? site.out() : site.in(0), gradient ? site.in(0) : site.out(), *c))
      return false;
    answer(out, std::move(c), gradient ? chosen::avg_pool_grad() : chosen::avg_pool(), "average pool");
  }
  return true;
}

}  // namespace

HM_PLANS(pool, {"max_pool", plan_pool}, {"max_pool_grad", plan_pool}, {"avg_pool", plan_pool},
         {"avg_pool_grad", plan_pool})

}  // namespace harmonics::cpu

#endif
