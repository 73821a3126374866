#include "../pool.hpp"

#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// The kernel steps [begin, end) that hit the plane from one output place, and the plane's coordinate at step 0.
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

void max_plane(const PoolContext& c, const float* x, float* y, int32_t* indices) {
  for (int64_t i = 0; i < c.out_height; ++i) {
    const Window rows = window(c, 0, i, c.height);
    for (int64_t j = 0; j < c.out_width; ++j) {
      const Window columns = window(c, 1, j, c.width);
      int64_t best = -1;
      float most = 0;
      for (int64_t a = rows.begin; a < rows.end; ++a)
        for (int64_t b = columns.begin; b < columns.end; ++b) {
          const int64_t at = (rows.start + a * c.dilation[0]) * c.width + columns.start + b * c.dilation[1];
          const float v = x[at];
          // NaN wins and stays; equals do not take over.
          if (best < 0 || v > most || (v != v && most == most)) most = v, best = at;
        }
      y[i * c.out_width + j] = most;
      indices[i * c.out_width + j] = static_cast<int32_t>(best);
    }
  }
}

HM_INLINE float share_of_window(const PoolContext& c, const Window& rows, const Window& columns) {
  const int64_t n = c.include_padding ? c.kernel[0] * c.kernel[1] : (rows.end - rows.begin) * (columns.end - columns.begin);
  return 1.0f / static_cast<float>(n);
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
    for (int64_t i = 0; i < c.out_height; ++i) {
      const Window rows = window(c, 0, i, c.height);
      for (int64_t j = 0; j < c.out_width; ++j) {
        const Window columns = window(c, 1, j, c.width);
        float sum = 0;
        for (int64_t a = rows.begin; a < rows.end; ++a)
          for (int64_t b = columns.begin; b < columns.end; ++b)
            sum += x[(rows.start + a * c.dilation[0]) * c.width + columns.start + b * c.dilation[1]];
        y[i * c.out_width + j] = sum * share_of_window(c, rows, columns);
      }
    }
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
