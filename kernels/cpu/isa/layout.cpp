#include "../layout.hpp"

#include <cstring>

#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kTile = 16;

template <typename T>
void copy_row(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if (to_stride == 1 && from_stride == 0) {
    const T v = *from;
    for (int64_t i = 0; i < n; ++i) to[i] = v;
  } else if (to_stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * from_stride];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// Transposes a tile: to[i * to_stride + j] = from[i + j * from_stride]. Reads and writes stay in few cache lines.
template <typename T>
void transpose_tile(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  if (rows == kTile && columns == kTile) {
    T tile[kTile][kTile];
    for (int64_t j = 0; j < kTile; ++j)
      for (int64_t i = 0; i < kTile; ++i) tile[i][j] = from[j * from_stride + i];
    for (int64_t i = 0; i < kTile; ++i) std::memcpy(to + i * to_stride, tile[i], sizeof tile[i]);
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = from[j * from_stride + i];
}

// Transposes a plane: axis a is contiguous in `from`, the last axis in `to`.
template <typename T>
void transpose_plane(const T* from, T* to, const StridedView& v, uint32_t a, const int64_t* dims) {
  const uint32_t b = v.rank - 1;
  for (int64_t i = 0; i < dims[a]; i += kTile)
    for (int64_t j = 0; j < dims[b]; j += kTile)
      transpose_tile(from + i + j * v.from_strides[b], v.from_strides[b], to + i * v.to_strides[a] + j, v.to_strides[a],
                     dims[a] - i < kTile ? dims[a] - i : kTile, dims[b] - j < kTile ? dims[b] - j : kTile);
}

template <typename T>
void copy_view(const CopyContext& c, const char* from_bytes, char* to_bytes, Range range) {
  const StridedView& v = c.view;
  const T* from = reinterpret_cast<const T*>(from_bytes) + v.from_offset + range.begin * v.from_strides[c.split_axis];
  T* to = reinterpret_cast<T*>(to_bytes) + v.to_offset + range.begin * v.to_strides[c.split_axis];
  int64_t dims[HX_MAX_RANK], index[HX_MAX_RANK] = {};
  for (uint32_t i = 0; i < v.rank; ++i) dims[i] = v.dims[i];
  dims[c.split_axis] = range.end - range.begin;
  if (range.end <= range.begin) return;
  const uint32_t last = v.rank - 1;
  while (true) {
    if (c.tile_axis >= 0)
      transpose_plane(from, to, v, static_cast<uint32_t>(c.tile_axis), dims);
    else
      copy_row(from, v.from_strides[last], to, v.to_strides[last], dims[last]);
    uint32_t i = last;
    for (;;) {
      if (i == 0) return;
      --i;
      if (static_cast<int32_t>(i) == c.tile_axis) continue;
      from += v.from_strides[i];
      to += v.to_strides[i];
      if (++index[i] < dims[i]) break;
      from -= dims[i] * v.from_strides[i];
      to -= dims[i] * v.to_strides[i];
      index[i] = 0;
    }
  }
}

template <typename T>
void fill_range(char* to, uint64_t bits, Range r) {
  T v;
  std::memcpy(&v, &bits, sizeof v);
  T* y = reinterpret_cast<T*>(to);
  for (int64_t i = r.begin; i < r.end; ++i) y[i] = v;
}
void fill_bytes(char* to, uint64_t bits, uint32_t width, Range r) {
  if (width == 4) return fill_range<uint32_t>(to, bits, r);
  if (width == 1) return fill_range<uint8_t>(to, bits, r);
  if (width == 8) return fill_range<uint64_t>(to, bits, r);
  fill_range<uint16_t>(to, bits, r);
}

}  // namespace

// Phases: fill, if there is one; copy.
void strided_copy(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const CopyContext*>(context);
  const char* from = static_cast<const char*>(buffers[c.from_buffer]);
  char* to = static_cast<char*>(buffers[c.to_buffer]);
  if (c.fill_count && phase == 0) return fill_bytes(to, c.fill, c.element_bytes, share(c.fill_count, c.parts, part));
  const Range range = share(c.view.dims[c.split_axis], c.parts, part);
  if (c.element_bytes == 4) return copy_view<uint32_t>(c, from, to, range);
  if (c.element_bytes == 1) return copy_view<uint8_t>(c, from, to, range);
  if (c.element_bytes == 8) return copy_view<uint64_t>(c, from, to, range);
  copy_view<uint16_t>(c, from, to, range);
}

void concat(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const ConcatContext*>(context);
  char* to = static_cast<char*>(buffers[c.n_inputs]);
  const Range rows = share(c.outer, c.parts, part);
  int64_t offset = 0;
  for (uint32_t i = 0; i < c.n_inputs; offset += c.input_bytes[i++]) {
    const int64_t bytes = c.input_bytes[i];
    const char* from = static_cast<const char*>(buffers[i]);
    for (int64_t r = rows.begin; r < rows.end; ++r)
      std::memcpy(to + r * c.row_bytes + offset, from + r * bytes, static_cast<size_t>(bytes));
  }
}

void full(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const FillContext*>(context);
  fill_bytes(static_cast<char*>(buffers[0]), c.bits, c.element_bytes, share(c.count, c.parts, part));
}

void iota(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const FillContext*>(context);
  const Range r = share(c.count, c.parts, part);
  for (int64_t i = r.begin; i < r.end; ++i) {
    const int64_t value = i / c.inner % c.size;
    if (c.dtype == HX_F32)
      static_cast<float*>(buffers[0])[i] = static_cast<float>(value);
    else if (c.dtype == HX_I32)
      static_cast<int32_t*>(buffers[0])[i] = static_cast<int32_t>(value);
    else if (c.dtype == HX_F64)
      static_cast<double*>(buffers[0])[i] = static_cast<double>(value);
    else
      static_cast<int64_t*>(buffers[0])[i] = value;
  }
}

}  // namespace harmonics::cpu::HM_ISA
