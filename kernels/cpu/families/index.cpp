// Gather, scatter, and slices with run-time starts.
#include "../family.hpp"

#include <cstdint>

#include <harmonics/abi.h>

namespace harmonics::cpu {
namespace {

// An axis of `size` rows of `inner` elements, `outer` times; `indices`: number of row indices.
struct IndexContext {
  int64_t outer, size, inner, indices;
  uint32_t index_dtype, element_bytes;
  uint32_t parts;                    // gather: parts of outer * indices
  uint32_t row_parts, column_parts;  // scatter_add: each part owns rows and columns of the result
  uint32_t x, ids, updates, y;       // buffers
  bool has_x;                        // scatter_add starts from x, else from 0
};

enum class ScatterKind : uint32_t { set, add, max, min };

// Batches of `rows` rows of `inner` elements. Each batch has `places` positions of k indices; a position selects a row.
struct PositionContext {
  int64_t batches, rows, inner, places;
  uint32_t k;
  int64_t sizes[HX_MAX_RANK];  // of the k indexed axes
  bool shared;                 // all batches have the same positions: scatter_add
  uint32_t index_dtype, dtype, element_bytes;
  ScatterKind kind;
  uint32_t parts;                    // gather_nd: parts of all positions
  uint32_t copy_parts;               // scatter_nd: phase that copies x, skipped in place
  uint32_t half;                     // scatter_nd: HX_F16 or HX_BF16 if accumulated in f32 in the workspace; else 0
  uint32_t row_parts, column_parts;  // scatter_nd: each part owns rows and columns of the result
};

// A block of a larger tensor of the same rank, copied as contiguous runs. Starts are clamped so that the block fits.
struct BlockCopyContext {
  uint32_t rank, run_axes;  // the first `run_axes` axes of the block index the runs
  int64_t sizes[HX_MAX_RANK], last_starts[HX_MAX_RANK];
  int64_t axis_bytes[HX_MAX_RANK];  // byte strides of the whole tensor
  int64_t runs, run_bytes;
  int64_t whole_bytes;
  uint32_t starts_dtype;
  uint32_t copy_parts, parts;  // copy_parts: update_slice's phase that copies the whole, skipped in place
  uint32_t starts;             // buffers
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>
#include <type_traits>

#include "half_floats.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t index_at(const void* indices, uint32_t dtype, int64_t i) {
  if (dtype == HX_I64) return static_cast<const int64_t*>(indices)[i];
  if (dtype == HX_I32) return static_cast<const int32_t*>(indices)[i];
  return static_cast<const uint8_t*>(indices)[i];
}
HM_INLINE int64_t clamp(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

int64_t block_offset(const BlockCopyContext& c, const void* starts) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < c.rank; ++i)
    offset += clamp(index_at(starts, c.starts_dtype, i), c.last_starts[i] + 1) * c.axis_bytes[i];
  return offset;
}

int64_t run_offset(const BlockCopyContext& c, int64_t run) {
  int64_t offset = 0;
  for (uint32_t i = c.run_axes; i-- > 0;) {
    offset += run % c.sizes[i] * c.axis_bytes[i];
    run /= c.sizes[i];
  }
  return offset;
}

// Returns the row of a position, counted over all batches.
HM_INLINE int64_t row_of(const PositionContext& c, const void* indices, int64_t position) {
  int64_t row = position / c.places;
  if (c.shared) position %= c.places;
  for (uint32_t i = 0; i < c.k; ++i)
    row = row * c.sizes[i] + clamp(index_at(indices, c.index_dtype, position * c.k + i), c.sizes[i]);
  return row;
}

// Integer overflow wraps.
template <typename T>
HM_INLINE T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(static_cast<Bits>(a) + static_cast<Bits>(b)));
  } else {
    return a + b;
  }
}
// Returns NaN if either operand is NaN.
template <typename T>
HM_INLINE T greater_of(T a, T b) {
  return a != a || (b == b && !(b > a)) ? a : b;
}
template <typename T>
HM_INLINE T smaller_of(T a, T b) {
  return a != a || (b == b && !(b < a)) ? a : b;
}

// Applies the updates of all positions in order, for the rows and columns of this part.
template <typename T, typename Join>
HM_INLINE void scatter_rows(const PositionContext& c, const void* indices, const void* updates, void* y, Range rows,
                            Range columns, Join join) {
  for (int64_t p = 0; p < c.batches * c.places; ++p) {
    const int64_t row = row_of(c, indices, p);
    if (row < rows.begin || row >= rows.end) continue;
    T* to = static_cast<T*>(y) + row * c.inner;
    const T* from = static_cast<const T*>(updates) + p * c.inner;
    for (int64_t i = columns.begin; i < columns.end; ++i) to[i] = join(to[i], from[i]);
  }
}

template <typename T>
void scatter_numbers(const PositionContext& c, const void* indices, const void* updates, void* y, Range rows,
                     Range columns) {
  if (c.kind == ScatterKind::add)
    scatter_rows<T>(c, indices, updates, y, rows, columns, [](T a, T b) { return sum_of(a, b); });
  else if (c.kind == ScatterKind::max)
    scatter_rows<T>(c, indices, updates, y, rows, columns, [](T a, T b) { return greater_of(a, b); });
  else
    scatter_rows<T>(c, indices, updates, y, rows, columns, [](T a, T b) { return smaller_of(a, b); });
}

void scatter_bytes(const PositionContext& c, const void* indices, const void* updates, void* y, Range rows,
                   Range columns) {
  const int64_t bytes = c.inner * c.element_bytes, first = columns.begin * c.element_bytes;
  const auto length = static_cast<size_t>((columns.end - columns.begin) * c.element_bytes);
  for (int64_t p = 0; p < c.batches * c.places; ++p) {
    const int64_t row = row_of(c, indices, p);
    if (row < rows.begin || row >= rows.end) continue;
    std::memcpy(static_cast<char*>(y) + row * bytes + first, static_cast<const char*>(updates) + p * bytes + first,
                length);
  }
}

}  // namespace

// Gathers rows. Out-of-range indices are clamped.
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

// Each part owns rows and columns of the result and adds their updates in index order.
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

void gather_nd(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PositionContext*>(context);
  const Range positions = share(c.batches * c.places, c.parts, part);
  const int64_t bytes = c.inner * c.element_bytes;
  for (int64_t p = positions.begin; p < positions.end; ++p)
    std::memcpy(static_cast<char*>(buffers[2]) + p * bytes,
                static_cast<const char*>(buffers[0]) + row_of(c, buffers[1], p) * bytes, static_cast<size_t>(bytes));
}

namespace {

void scatter_part(const PositionContext& c, const void* ids, const void* updates, void* y, uint32_t part) {
  const Range rows = share(c.batches * c.rows, c.row_parts, part / c.column_parts),
              columns = share(c.inner, c.column_parts, part % c.column_parts);
  if (c.kind == ScatterKind::set) return scatter_bytes(c, ids, updates, y, rows, columns);
  switch (c.dtype) {
    case HX_F32:
      return scatter_numbers<float>(c, ids, updates, y, rows, columns);
    case HX_F64:
      return scatter_numbers<double>(c, ids, updates, y, rows, columns);
    case HX_I8:
      return scatter_numbers<int8_t>(c, ids, updates, y, rows, columns);
    case HX_U8:
      return scatter_numbers<uint8_t>(c, ids, updates, y, rows, columns);
    case HX_I16:
      return scatter_numbers<int16_t>(c, ids, updates, y, rows, columns);
    case HX_U16:
      return scatter_numbers<uint16_t>(c, ids, updates, y, rows, columns);
    case HX_I32:
      return scatter_numbers<int32_t>(c, ids, updates, y, rows, columns);
    case HX_U32:
      return scatter_numbers<uint32_t>(c, ids, updates, y, rows, columns);
    case HX_I64:
      return scatter_numbers<int64_t>(c, ids, updates, y, rows, columns);
    case HX_U64:
      return scatter_numbers<uint64_t>(c, ids, updates, y, rows, columns);
    default:
      return;
  }
}

// Phases for 16-bit floats: widen x and updates; scatter; narrow.
void scatter_halves(const PositionContext& c, void* const* buffers, uint32_t phase, uint32_t part) {
  const int64_t whole = c.batches * c.rows * c.inner, given = c.batches * c.places * c.inner;
  float *sums = static_cast<float*>(buffers[4]), *updates = sums + whole;
  if (phase == 1) return scatter_part(c, buffers[1], updates, sums, part);
  const Range own = share(whole, c.copy_parts, part), of_updates = share(given, c.copy_parts, part);
  const auto convert = [](uint32_t from, uint32_t to, const void* x, void* y, Range range, int64_t x_bytes) {
    find_cast(from, to)(static_cast<const char*>(x) + range.begin * x_bytes, nullptr, nullptr,
                        static_cast<char*>(y) + range.begin * (6 - x_bytes), range.end - range.begin);
  };
  if (phase == 2) return convert(HX_F32, c.half, sums, buffers[3], own, 4);
  convert(c.half, HX_F32, buffers[0], sums, own, 2);
  convert(c.half, HX_F32, buffers[2], updates, of_updates, 2);
}

}  // namespace

// Phases: copy x, skipped in place; scatter.
void scatter_nd(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const PositionContext*>(context);
  if (c.half) return scatter_halves(c, buffers, phase, part);
  char* y = static_cast<char*>(buffers[3]);
  if (phase == 1) return scatter_part(c, buffers[1], buffers[2], y, part);
  const Range bytes = share(c.batches * c.rows * c.inner * c.element_bytes, c.copy_parts, part);
  if (y != buffers[0])
    std::memcpy(y + bytes.begin, static_cast<const char*>(buffers[0]) + bytes.begin,
                static_cast<size_t>(bytes.end - bytes.begin));
}

void dynamic_slice(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const BlockCopyContext*>(context);
  const Range runs = share(c.runs, c.parts, part);
  const char* whole = static_cast<const char*>(buffers[0]) + block_offset(c, buffers[c.starts]);
  char* block = static_cast<char*>(buffers[2]);
  for (int64_t r = runs.begin; r < runs.end; ++r)
    std::memcpy(block + r * c.run_bytes, whole + run_offset(c, r), static_cast<size_t>(c.run_bytes));
}

// Phases: copy the whole, skipped in place; write the block.
void update_slice(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const BlockCopyContext*>(context);
  const char *x = static_cast<const char*>(buffers[0]), *block = static_cast<const char*>(buffers[1]);
  char* y = static_cast<char*>(buffers[3]);
  if (phase == 0) {
    const Range bytes = share(c.whole_bytes, c.copy_parts, part);
    if (y != x) std::memcpy(y + bytes.begin, x + bytes.begin, static_cast<size_t>(bytes.end - bytes.begin));
    return;
  }
  const Range runs = share(c.runs, c.parts, part);
  char* to = y + block_offset(c, buffers[c.starts]);
  for (int64_t r = runs.begin; r < runs.end; ++r)
    std::memcpy(to + run_offset(c, r), block + r * c.run_bytes, static_cast<size_t>(c.run_bytes));
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <algorithm>
#include <string_view>

HM_VECTOR_CODE(gather)
HM_VECTOR_CODE(scatter_add)
HM_VECTOR_CODE(gather_nd)
HM_VECTOR_CODE(scatter_nd)
HM_VECTOR_CODE(dynamic_slice)
HM_VECTOR_CODE(update_slice)

namespace harmonics::cpu {
namespace {

std::unique_ptr<IndexContext> index_context(const hx_type& x, size_t axis, const hx_type& ids) {
  auto c = std::make_unique<IndexContext>();
  c->size = x.dims[axis];
  c->inner = strides(x)[axis];
  c->outer = count(x) / (c->size * c->inner);
  c->indices = count(ids);
  c->index_dtype = ids.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  return c;
}

bool answer_scatter(std::unique_ptr<IndexContext> c, hx_kernel& out, const char* name) {
  const double updates = static_cast<double>(c->outer * c->indices);
  const double ns =
      updates * (2 + 0.15 * static_cast<double>(c->inner)) + 0.1 * static_cast<double>(c->outer * c->size * c->inner);
  c->row_parts = c->column_parts = 1;
  if (c->inner >= 32)
    c->column_parts = parts_for(ns, c->inner / 16);
  else
    c->row_parts = parts_for(ns, c->size);
  const std::vector<uint32_t> parts = {c->row_parts * c->column_parts};
  answer(out, std::move(c), chosen::scatter_add(), name, parts);
  return true;
}

// Positions along one axis, the same for every outer row.
std::unique_ptr<PositionContext> one_axis(const hx_type& x, size_t axis, const hx_type& ids) {
  auto c = std::make_unique<PositionContext>();
  c->rows = c->sizes[0] = x.dims[axis];
  c->inner = strides(x)[axis];
  c->batches = count(x) / (c->rows * c->inner);
  c->places = count(ids);
  c->k = 1;
  c->shared = true;
  c->index_dtype = ids.dtype;
  c->dtype = x.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  c->kind = ScatterKind::add;
  return c;
}

std::unique_ptr<PositionContext> position_context(const Site& site) {
  const hx_type &x = site.in(0), &ids = site.in(1);
  auto c = std::make_unique<PositionContext>();
  const auto batch = static_cast<uint32_t>(site.integer("batch_axes"));
  c->k = static_cast<uint32_t>(last(ids));
  c->batches = c->rows = c->inner = 1;
  for (uint32_t i = 0; i < x.rank; ++i) {
    if (i >= batch && i < batch + c->k) c->sizes[i - batch] = x.dims[i];
    (i < batch ? c->batches : i < batch + c->k ? c->rows : c->inner) *= x.dims[i];
  }
  c->places = count(ids) / (c->batches * c->k);
  c->index_dtype = ids.dtype;
  c->dtype = x.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  return c;
}

// Plans the scatter of updates into x, in place if allowed. 16-bit floats are accumulated in f32 and rounded once; the
// workspace contains result and updates in f32.
bool answer_positions(const Site& site, std::unique_ptr<PositionContext> c, hx_kernel& out, const char* name) {
  c->half = c->kind != ScatterKind::set && kernels::is_half(c->dtype) ? c->dtype : 0;
  if (c->half) c->dtype = HX_F32;
  const int64_t bytes = count(site.in(0)) * c->element_bytes;
  const double ns =
      static_cast<double>(c->batches * c->places) * (6 + 0.05 * static_cast<double>(c->inner * c->element_bytes));
  c->copy_parts = parts_for(0.05 * static_cast<double>(bytes), bytes);
  c->row_parts = c->column_parts = 1;
  if (c->inner >= 32)
    c->column_parts = parts_for(ns, c->inner / 16);
  else
    c->row_parts = parts_for(ns, c->batches * c->rows);
  std::vector<uint32_t> parts = {c->copy_parts, c->row_parts * c->column_parts};
  if (c->half) parts.push_back(c->copy_parts);
  const int64_t floats = c->half ? count(site.in(0)) + count(site.in(2)) : 0;
  hx_kernel& kernel = answer(out, std::move(c), chosen::scatter_nd(), name, parts);
  kernel.in_place = 1;
  kernel.workspace = static_cast<uint64_t>(floats) * sizeof(float);
  return true;
}

std::unique_ptr<BlockCopyContext> block_copy(const hx_type& whole, const hx_type& block, const hx_type& starts) {
  auto c = std::make_unique<BlockCopyContext>();
  const std::vector<int64_t> steps = strides(whole);
  const int64_t bytes = width(whole.dtype);
  c->rank = whole.rank;
  c->run_axes = whole.rank - 1;
  while (c->run_axes > 0 && block.dims[c->run_axes] == whole.dims[c->run_axes]) --c->run_axes;
  c->runs = 1;
  for (uint32_t i = 0; i < c->rank; ++i) {
    c->sizes[i] = block.dims[i];
    c->last_starts[i] = whole.dims[i] - block.dims[i];
    c->axis_bytes[i] = steps[i] * bytes;
    if (i < c->run_axes) c->runs *= block.dims[i];
  }
  c->run_bytes = count(block) / c->runs * bytes;
  c->whole_bytes = count(whole) * bytes;
  c->starts_dtype = starts.dtype;
  c->parts = parts_for(static_cast<double>(c->runs) * (6 + 0.05 * static_cast<double>(c->run_bytes)), c->runs);
  return c;
}

bool plan_dynamic_slice(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(1))) return false;
  auto c = block_copy(site.in(0), site.out(), site.in(1));
  c->starts = 1;
  answer(out, std::move(c), chosen::dynamic_slice(), "dynamic slice");
  return true;
}

bool plan_update_slice(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(2))) return false;
  auto c = block_copy(site.in(0), site.in(1), site.in(2));
  c->starts = 2;
  c->copy_parts = parts_for(0.05 * static_cast<double>(c->whole_bytes), c->whole_bytes);
  const std::vector<uint32_t> parts = {c->copy_parts, c->parts};
  answer(out, std::move(c), chosen::update_slice(), "update slice", parts).in_place = 1;
  return true;
}

bool plan_gather(const Site& site, hx_kernel& out) {
  const uint32_t table = site.in(0).dtype;
  const bool widens = site.op() == "embedding" && kernels::is_half(table) && is_f32(site.out());
  if (kernels::is_stored(table) || widens) return plan_typed_embedding(site, out);
  if (!is_index(site.in(1)) || site.in(0).rank == 0) return false;
  if (site.in(0).dtype != site.out().dtype) return declined("copies rows, without a conversion");
  const int64_t axis = site.op() == "embedding" ? 0 : site.integer("axis");
  auto c = index_context(site.in(0), static_cast<size_t>(axis), site.in(1));
  c->x = 0;
  c->ids = 1;
  c->y = 2;
  const int64_t rows = c->outer * c->indices;
  c->parts = parts_for(static_cast<double>(rows) * (4 + 0.05 * static_cast<double>(c->inner * c->element_bytes)), rows);
  answer(out, std::move(c), chosen::gather(), "gather");
  return true;
}

bool plan_scatter_add(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!is_index(site.in(1)) || x.rank == 0 || site.in(2).dtype != x.dtype) return false;
  const auto axis = static_cast<size_t>(site.integer("axis"));
  if (!is_f32(x)) return answer_positions(site, one_axis(x, axis, site.in(1)), out, "scatter add");
  auto c = index_context(x, axis, site.in(1));
  c->has_x = true;
  c->ids = 1;
  c->updates = 2;
  c->y = 3;
  answer_scatter(std::move(c), out, "scatter add");
  out.in_place = 1;
  return true;
}

bool plan_gather_nd(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(1))) return false;
  auto c = position_context(site);
  const int64_t rows = c->batches * c->places;
  c->parts = parts_for(static_cast<double>(rows) * (6 + 0.05 * static_cast<double>(c->inner * c->element_bytes)), rows);
  answer(out, std::move(c), chosen::gather_nd(), "gather nd");
  return true;
}

bool plan_scatter_nd(const Site& site, hx_kernel& out) {
  constexpr std::string_view kKinds[] = {"set", "add", "max", "min"};
  const std::string name = site.text("reduction");
  const auto* kind = std::find(std::begin(kKinds), std::end(kKinds), name.empty() ? std::string("set") : name);
  if (!is_index(site.in(1)) || kind == std::end(kKinds)) return false;
  auto c = position_context(site);
  c->kind = static_cast<ScatterKind>(kind - std::begin(kKinds));
  return answer_positions(site, std::move(c), out, "scatter nd");
}

bool plan_embedding_grad(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(0)) || !is_f32(site.in(1)) || !is_f32(site.out())) return false;
  auto c = index_context(site.out(), 0, site.in(0));
  c->updates = 1;
  c->y = 2;
  return answer_scatter(std::move(c), out, "embedding gradient");
}

}  // namespace

HM_PLANS(index, {"gather", plan_gather}, {"embedding", plan_gather}, {"scatter_add", plan_scatter_add},
         {"gather_nd", plan_gather_nd}, {"scatter_nd", plan_scatter_nd}, {"dynamic_slice", plan_dynamic_slice},
         {"update_slice", plan_update_slice}, {"embedding_grad", plan_embedding_grad})

}  // namespace harmonics::cpu

#endif
