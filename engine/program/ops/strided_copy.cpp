#include "engine/program/ops/strided_copy.hpp"

#include <cstring>

namespace harmonics::engine {

namespace {

// Drops axes of size 1 and merges axes that are contiguous on both sides.
StridedCopy joined(const StridedCopy& copy) {
  StridedCopy out = copy;
  out.shape = Shape();
  for (uint32_t i = 0; i < copy.shape.rank(); ++i) {
    const int64_t n = copy.shape[i], f = copy.from_strides[i], t = copy.to_strides[i];
    if (n == 1) continue;
    const uint32_t last = out.shape.rank() - 1;
    if (out.shape.rank() && out.from_strides[last] == f * n && out.to_strides[last] == t * n) {
      out.shape[last] *= n;
      out.from_strides[last] = f;
      out.to_strides[last] = t;
      continue;
    }
    out.shape.push_back(n);
    out.from_strides[last + 1] = f;
    out.to_strides[last + 1] = t;
  }
  return out;
}

template <typename T>
void copy_row(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

template <typename T>
void run_as(const StridedCopy& c) {
  const uint32_t rank = c.shape.rank();
  const T* from = static_cast<const T*>(c.from) + c.from_offset;
  T* to = static_cast<T*>(c.to) + c.to_offset;
  if (rank == 0) {
    *to = *from;
    return;
  }
  const uint32_t inner = rank - 1;
  std::array<int64_t, HX_MAX_RANK> index{};
  int64_t f = 0, t = 0;
  while (true) {
    copy_row(from + f, c.from_strides[inner], to + t, c.to_strides[inner], c.shape[inner]);
    uint32_t axis = inner;
    while (axis > 0) {
      --axis;
      f += c.from_strides[axis];
      t += c.to_strides[axis];
      if (++index[axis] < c.shape[axis]) break;
      f -= c.from_strides[axis] * c.shape[axis];
      t -= c.to_strides[axis] * c.shape[axis];
      index[axis] = 0;
      if (axis == 0) return;
    }
    if (inner == 0) return;
  }
}

}  // namespace

Strides row_major(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (uint32_t i = shape.rank(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

void StridedCopy::run() const {
  if (shape.count() == 0) return;
  const StridedCopy c = joined(*this);
  switch (element_bytes) {
    case 1:
      return run_as<uint8_t>(c);
    case 2:
      return run_as<uint16_t>(c);
    case 4:
      return run_as<uint32_t>(c);
    case 8:
      return run_as<uint64_t>(c);
    default:
      throw Error(ErrorKind::Internal, "elements of " + std::to_string(element_bytes) + " bytes cannot be copied");
  }
}

}  // namespace harmonics::engine
