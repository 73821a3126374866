#include "../index.hpp"

#include <cstring>

#include <harmonics/abi.h>

#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t index_at(const void* indices, uint32_t dtype, int64_t i) {
  if (dtype == HX_I64) return static_cast<const int64_t*>(indices)[i];
  if (dtype == HX_I32) return static_cast<const int32_t*>(indices)[i];
  return static_cast<const uint8_t*>(indices)[i];
}
HM_INLINE int64_t clamp(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

}  // namespace

// Out-of-range indices are clamped.
void gather(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const IndexContext*>(context);
  const Range rows = share(c.outer * c.indices, c.parts, part);
  const int64_t bytes = c.inner * c.element_bytes;
  const char* x = static_cast<const char*>(buffers[c.x]);
  char* y = static_cast<char*>(buffers[c.y]);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t i = clamp(index_at(buffers[c.ids], c.index_dtype, r % c.indices), c.size);
    std::memcpy(y + r * bytes, x + (r / c.indices * c.size + i) * bytes, static_cast<size_t>(bytes));
  }
}

// Each part owns some rows and columns of the result and adds the updates for them, in index order.
void scatter_add(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const IndexContext*>(context);
  const Range rows = share(c.size, c.row_parts, part / c.column_parts),
              columns = share(c.inner, c.column_parts, part % c.column_parts);
  const int64_t n = columns.end - columns.begin;
  const float *x = c.has_x ? static_cast<const float*>(buffers[c.x]) : nullptr,
              *updates = static_cast<const float*>(buffers[c.updates]);
  float* y = static_cast<float*>(buffers[c.y]);
  for (int64_t o = 0; o < c.outer; ++o) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t at = (o * c.size + r) * c.inner + columns.begin;
      if (x)
        std::memmove(y + at, x + at, static_cast<size_t>(n) * 4);
      else
        std::memset(y + at, 0, static_cast<size_t>(n) * 4);
    }
    for (int64_t k = 0; k < c.indices; ++k) {
      const int64_t i = clamp(index_at(buffers[c.ids], c.index_dtype, k), c.size);
      if (i < rows.begin || i >= rows.end) continue;
      float* to = y + (o * c.size + i) * c.inner + columns.begin;
      const float* from = updates + (o * c.indices + k) * c.inner + columns.begin;
      int64_t j = 0;
      for (; j + kWidth <= n; j += kWidth) store(to + j, load(to + j) + load(from + j));
      if (j < n) store_part(to + j, load_part(to + j, n - j) + load_part(from + j, n - j), n - j);
    }
  }
}

void rope(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const RopeContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = static_cast<const float*>(buffers[0]) + r * 2 * c.half;
    float* y = static_cast<float*>(buffers[1]) + r * 2 * c.half;
    const int64_t position = r / c.repeats % c.positions;
    const float *cosine = c.cosines + position * c.half, *sine = c.sines + position * c.half;
    for (int64_t i = 0; i < c.half; i += kWidth) {
      const int64_t n = c.half - i < kWidth ? c.half - i : kWidth;
      const vf a = load_some(x + i, n), b = load_some(x + c.half + i, n), u = load_some(cosine + i, n),
               v = load_some(sine + i, n);
      store_some(y + i, a * u - b * v, n);
      store_some(y + c.half + i, b * u + a * v, n);
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA
