// The largest elements of each row, in falling order.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

struct TopKContext {
  enum Type : uint32_t { f32, f16, bf16, f64 } type;
  int64_t rows, size, k;
  uint32_t parts;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>

#include "half_floats.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

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

#else

#include <cmath>

HM_VECTOR_CODE(top_k)

namespace harmonics::cpu {
namespace {

bool plan_top_k(const Site& site, hx_kernel& out) {
  const uint32_t type = site.in(0).dtype;
  if (type != HX_F32 && type != HX_F16 && type != HX_BF16 && type != HX_F64) return false;
  auto c = std::make_unique<TopKContext>();
  c->type = type == HX_F16    ? TopKContext::f16
            : type == HX_BF16 ? TopKContext::bf16
            : type == HX_F64  ? TopKContext::f64
                              : TopKContext::f32;
  c->size = last(site.in(0));
  c->rows = count(site.in(0)) / c->size;
  c->k = last(site.out());
  const double kept = static_cast<double>(c->k), row = static_cast<double>(c->size) + 8 * kept * std::log2(kept + 1);
  c->parts = parts_for(static_cast<double>(c->rows) * row, c->rows);
  answer(out, std::move(c), chosen::top_k(), "top k");
  return true;
}

}  // namespace

HM_PLANS(top_k, {"top_k", plan_top_k})

}  // namespace harmonics::cpu

#endif
