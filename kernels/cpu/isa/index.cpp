#include "../index.hpp"

#include <cstring>
#include <type_traits>

#include <harmonics/abi.h>

#include "half_floats.hpp"
#include "kernels.hpp"

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

// Element types of top_k: the stored type, and the wider type for comparisons.
template <typename T>
struct Whole {
  using Stored = T;
  using Wide = T;
  static Wide wide(Stored x) { return x; }
  static void widen(const Stored* from, Wide* to, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  }
};
struct HalfFloats {
  using Stored = uint16_t;
  using Wide = float;
  static Wide wide(Stored x) { return load_f16_part(&x, 1)[0]; }
  static void widen(const Stored* from, Wide* to, int64_t n) { widen_f16(from, to, n); }
};
struct BrainFloats {
  using Stored = uint16_t;
  using Wide = float;
  static Wide wide(Stored x) {
    const uint32_t bits_of = static_cast<uint32_t>(x) << 16;
    Wide number;
    std::memcpy(&number, &bits_of, sizeof number);
    return number;
  }
  static void widen(const Stored* from, Wide* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = wide(from[i]);
  }
};

// The order of top_k: descending, NaN first, ties by lower index.
template <typename T>
HM_INLINE bool before(T a, int64_t i, T b, int64_t j) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan || b_nan) return a_nan && b_nan ? i < j : a_nan;
  return a > b || (a == b && i < j);
}

// Heap of values and indices; the root is last in the order of before().
template <typename Type>
struct Chosen {
  typename Type::Stored* values;
  int64_t* indices;

  bool ordered(int64_t a, int64_t b) const {
    return before(Type::wide(values[a]), indices[a], Type::wide(values[b]), indices[b]);
  }
  void swap(int64_t a, int64_t b) {
    const auto value = values[a];
    const int64_t index = indices[a];
    values[a] = values[b];
    indices[a] = indices[b];
    values[b] = value;
    indices[b] = index;
  }
  void sink(int64_t at, int64_t size) {
    for (int64_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && ordered(child, child + 1)) ++child;
      if (!ordered(at, child)) return;
      swap(at, child);
      at = child;
    }
  }
};

template <typename Type>
void top_k_row(const typename Type::Stored* x, int64_t size, int64_t k, Chosen<Type> chosen) {
  for (int64_t i = 0; i < k; ++i) {
    chosen.values[i] = x[i];
    chosen.indices[i] = i;
  }
  for (int64_t i = k / 2; i-- > 0;) chosen.sink(i, k);
  constexpr int64_t kPiece = 256;
  typename Type::Wide piece[kPiece], root = Type::wide(chosen.values[0]);
  for (int64_t first = k; first < size; first += kPiece) {
    const int64_t n = size - first < kPiece ? size - first : kPiece;
    Type::widen(x + first, piece, n);
    for (int64_t i = 0; i < n; ++i) {
      if (piece[i] <= root || !before(piece[i], first + i, root, chosen.indices[0])) continue;
      chosen.values[0] = x[first + i];
      chosen.indices[0] = first + i;
      chosen.sink(0, k);
      root = Type::wide(chosen.values[0]);
    }
  }
  for (int64_t end = k - 1; end > 0; --end) {
    chosen.swap(0, end);
    chosen.sink(0, end);
  }
}

template <typename Type>
void top_k_rows(const TopKContext& c, void* const* buffers, const Range& rows) {
  using Stored = typename Type::Stored;
  for (int64_t r = rows.begin; r < rows.end; ++r)
    top_k_row<Type>(static_cast<const Stored*>(buffers[0]) + r * c.size, c.size, c.k,
                    {static_cast<Stored*>(buffers[1]) + r * c.k, static_cast<int64_t*>(buffers[2]) + r * c.k});
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

void top_k(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const TopKContext*>(context);
  const Range rows = share(c.rows, c.parts, part);
  switch (c.type) {
    case TopKContext::f16:
      return top_k_rows<HalfFloats>(c, buffers, rows);
    case TopKContext::bf16:
      return top_k_rows<BrainFloats>(c, buffers, rows);
    case TopKContext::f64:
      return top_k_rows<Whole<double>>(c, buffers, rows);
    default:
      return top_k_rows<Whole<float>>(c, buffers, rows);
  }
}

}  // namespace harmonics::cpu::HM_ISA
