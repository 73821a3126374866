// Copies between strided views (transpose, broadcast, slice, reverse, pad), concat, fill, iota.
#include "../family.hpp"
#include "../layout.hpp"

namespace harmonics::cpu {
namespace {

struct ConcatContext {
  int64_t outer;
  int64_t row_bytes;  // of the result
  uint32_t n_inputs, parts;
  const int64_t* input_bytes;  // per outer row
};

struct FillContext {
  int64_t count;
  uint32_t parts, element_bytes, dtype;
  uint64_t bits;
  int64_t size, inner;  // iota: 0, 1 ... along an axis of `size` with stride `inner`
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>

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

#else

#include <bit>

HM_VECTOR_CODE(concat)
HM_VECTOR_CODE(full)
HM_VECTOR_CODE(iota)

namespace harmonics::cpu {
namespace {

double copy_nanoseconds(int64_t bytes) { return 0.15 * static_cast<double>(bytes); }

// Returns the view of a walk with joined axes; it has at least one axis.
StridedView view_of(Walk walk) {
  walk.join();
  if (walk.sizes.empty()) walk = {{1}, {{1}, {1}}, std::move(walk.offsets)};
  StridedView v{};
  v.rank = static_cast<uint32_t>(walk.sizes.size());
  for (uint32_t i = 0; i < v.rank; ++i) {
    v.dims[i] = walk.sizes[i];
    v.to_strides[i] = walk.strides[0][i];
    v.from_strides[i] = walk.strides[1][i];
  }
  v.to_offset = walk.offsets[0];
  v.from_offset = walk.offsets[1];
  return v;
}

// Sets `bits` to the element of `dtype` nearest to a number.
bool element_bits(uint32_t dtype, double value, uint64_t& bits) {
  bits = 0;
  switch (dtype) {
    case HX_F32:
      bits = std::bit_cast<uint32_t>(static_cast<float>(value));
      return true;
    case HX_F64:
      bits = std::bit_cast<uint64_t>(value);
      return true;
    case HX_BOOL:
      bits = value != 0;
      return true;
    case HX_U8:
      bits = static_cast<uint8_t>(value);
      return true;
    case HX_I32:
      bits = static_cast<uint32_t>(static_cast<int32_t>(value));
      return true;
    case HX_I64:
      bits = static_cast<uint64_t>(static_cast<int64_t>(value));
      return true;
    default:
      return false;
  }
}

bool answer_copy(const Site& site, Walk walk, const char* name, hx_kernel& out, int64_t fill_count = 0,
                 uint64_t fill = 0) {
  auto c =
      std::make_unique<CopyContext>(copy_context(std::move(walk), kernels::width(site.out().dtype), 0, site.inputs()));
  c->fill_count = fill_count;
  c->fill = fill;
  std::vector<uint32_t> parts(fill_count ? 2 : 1, c->parts);
  answer(out, std::move(c), chosen::strided_copy(), name, parts);
  return true;
}

bool plan_transpose(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::transpose_walk(site), "transpose", out);
}
bool plan_broadcast(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::broadcast_walk(site), "broadcast", out);
}
bool plan_slice(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::slice_walk(site), "slice", out); }
bool plan_reverse(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::reverse_walk(site), "reverse", out);
}

bool plan_bitcast(const Site& site, hx_kernel& out) {
  return answer_copy(site, {{count(site.out())}, {{1}, {1}}, {0, 0}}, "bitcast", out);
}

bool plan_pad(const Site& site, hx_kernel& out) {
  const auto low = site.integers("low");
  const hx_type& y = site.out();
  uint64_t fill = 0;
  if (!element_bits(y.dtype, site.number("value"), fill)) return false;
  if (std::any_of(low.begin(), low.end(), [](int64_t n) { return n < 0; })) return false;
  return answer_copy(site, kernels::pad_walk(site), "pad", out, count(y), fill);
}

bool plan_concat(const Site& site, hx_kernel& out) {
  struct Owned : ConcatContext {
    std::vector<int64_t> bytes;
  };
  const auto axis = static_cast<uint32_t>(site.integer("axis"));
  const hx_type& y = site.out();
  auto c = std::make_unique<Owned>();
  c->outer = 1;
  for (uint32_t i = 0; i < axis; ++i) c->outer *= y.dims[i];
  c->row_bytes = count(y) / c->outer * width(y.dtype);
  for (uint32_t i = 0; i < site.inputs(); ++i) c->bytes.push_back(count(site.in(i)) / c->outer * width(y.dtype));
  c->input_bytes = c->bytes.data();
  c->n_inputs = site.inputs();
  c->parts = parts_for(copy_nanoseconds(c->outer * c->row_bytes), c->outer);
  answer<ConcatContext>(out, std::move(c), chosen::concat(), "concat");
  return true;
}

bool plan_full(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<FillContext>();
  if (!element_bits(site.out().dtype, site.number("value"), c->bits)) return false;
  c->count = count(site.out());
  c->element_bytes = static_cast<uint32_t>(width(site.out().dtype));
  c->parts = parts_for(copy_nanoseconds(c->count * c->element_bytes) / 2, c->count);
  answer(out, std::move(c), chosen::full(), "full");
  return true;
}

bool plan_iota(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  if (y.dtype != HX_F32 && y.dtype != HX_F64 && y.dtype != HX_I32 && y.dtype != HX_I64) return false;
  auto c = std::make_unique<FillContext>();
  const auto axis = static_cast<size_t>(site.integer("axis"));
  c->count = count(y);
  c->dtype = y.dtype;
  c->size = y.dims[axis];
  c->inner = strides(y)[axis];
  c->parts = parts_for(static_cast<double>(c->count) * 5, c->count);
  answer(out, std::move(c), chosen::iota(), "iota");
  return true;
}

}  // namespace

CopyContext copy_context(Walk walk, uint32_t element_bytes, uint32_t from_buffer, uint32_t to_buffer) {
  CopyContext c{};
  c.view = view_of(std::move(walk));
  c.element_bytes = element_bytes;
  c.from_buffer = from_buffer;
  c.to_buffer = to_buffer;
  c.tile_axis = -1;
  const uint32_t last = c.view.rank - 1;
  int64_t n = 1;
  for (uint32_t i = 0; i < c.view.rank; ++i) n *= c.view.dims[i];
  for (uint32_t i = 0; i < last; ++i)
    if (c.view.to_strides[last] == 1 && c.view.from_strides[last] != 1 && c.view.from_strides[i] == 1)
      c.tile_axis = static_cast<int32_t>(i);
  c.split_axis = static_cast<uint32_t>(std::max_element(c.view.dims, c.view.dims + std::max(last, 1u)) - c.view.dims);
  c.parts = parts_for(copy_nanoseconds(n * element_bytes) * (c.tile_axis >= 0 ? 3 : 1), c.view.dims[c.split_axis]);
  return c;
}

HM_PLANS(layout, {"transpose", plan_transpose}, {"broadcast", plan_broadcast}, {"slice", plan_slice},
         {"reverse", plan_reverse}, {"pad", plan_pad}, {"concat", plan_concat}, {"bitcast", plan_bitcast},
         {"full", plan_full}, {"iota", plan_iota})

}  // namespace harmonics::cpu

#endif
