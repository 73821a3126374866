// Stable sort along an axis. Elements are mapped to unsigned keys of the same order, which are sorted with their
// indices: few by insertion sort, many by radix sort.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

// `outer` * `inner` lines of `size` elements. The workspace has two lines of items for each part.
struct SortContext {
  int64_t outer, size, inner;
  uint32_t dtype, element_bytes, parts;
  bool descending;
};

// Bytes of an item: the key of an element and its index.
constexpr int64_t sort_item_bytes(uint32_t element_bytes) { return element_bytes == 8 ? 16 : 8; }

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>
#include <harmonics/abi.h>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kInsertion = 40;  // up to this many items, insertion sort
constexpr int kDigits = 256;

// Items for elements of up to 32 bits: key in the high bits, index in the low bits.
using Narrow = uint64_t;
struct Wide {
  uint64_t key, index;
};

HM_INLINE void set(Narrow& item, uint64_t key, int64_t index) { item = key << 32 | static_cast<uint64_t>(index); }
HM_INLINE void set(Wide& item, uint64_t key, int64_t index) { item = {key, static_cast<uint64_t>(index)}; }
HM_INLINE int64_t index_of(Narrow item) { return static_cast<int64_t>(item & 0xffffffff); }
HM_INLINE int64_t index_of(const Wide& item) { return static_cast<int64_t>(item.index); }
HM_INLINE uint64_t key_of(Narrow item) { return item >> 32; }
HM_INLINE uint64_t key_of(const Wide& item) { return item.key; }

template <typename Item>
HM_INLINE uint32_t digit(const Item& item, uint32_t pass) {
  return static_cast<uint32_t>(key_of(item) >> (8 * pass)) & (kDigits - 1);
}

template <typename Item>
void insert_all(Item* items, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const Item item = items[i];
    int64_t at = i;
    for (; at > 0 && key_of(items[at - 1]) > key_of(item); --at) items[at] = items[at - 1];
    items[at] = item;
  }
}

// Returns the sorted items, which are in one of the two arrays.
template <typename Item>
Item* sort_items(Item* items, Item* others, int64_t n, uint32_t passes) {
  if (n <= kInsertion) return insert_all(items, n), items;
  uint32_t counts[8][kDigits];
  std::memset(counts, 0, sizeof counts);
  for (int64_t i = 0; i < n; ++i)
    for (uint32_t p = 0; p < passes; ++p) ++counts[p][digit(items[i], p)];
  for (uint32_t p = 0; p < passes; ++p) {
    uint32_t* places = counts[p];
    if (places[digit(items[0], p)] == n) continue;  // all items have the same digit
    uint32_t sum = 0;
    for (int d = 0; d < kDigits; ++d) {
      const uint32_t count = places[d];
      places[d] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; ++i) others[places[digit(items[i], p)]++] = items[i];
    Item* sorted = others;
    others = items;
    items = sorted;
  }
  return items;
}

// Returns the key of a float: every NaN has the largest key, both zeros have the same. `magnitude`: mask of all bits
// except the sign.
template <typename Bits>
HM_INLINE Bits float_key(Bits bits, Bits magnitude, Bits infinity) {
  const Bits size = bits & magnitude;
  if (size > infinity) return static_cast<Bits>(~Bits(0));
  const Bits sign = static_cast<Bits>(~magnitude);
  if (size == 0) return sign;
  return static_cast<Bits>(bits & sign ? ~bits : bits | sign);
}

struct Keys {
  uint32_t dtype;
  HM_INLINE uint8_t of(uint8_t bits) const { return dtype == HX_I8 ? static_cast<uint8_t>(bits ^ 0x80) : bits; }
  HM_INLINE uint16_t of(uint16_t bits) const {
    if (dtype == HX_F16) return float_key<uint16_t>(bits, 0x7fff, 0x7c00);
    if (dtype == HX_BF16) return float_key<uint16_t>(bits, 0x7fff, 0x7f80);
    return dtype == HX_I16 ? static_cast<uint16_t>(bits ^ 0x8000) : bits;
  }
  HM_INLINE uint32_t of(uint32_t bits) const {
    if (dtype == HX_F32) return float_key<uint32_t>(bits, 0x7fffffff, 0x7f800000);
    return dtype == HX_I32 ? bits ^ 0x80000000u : bits;
  }
  HM_INLINE uint64_t of(uint64_t bits) const {
    if (dtype == HX_F64) return float_key<uint64_t>(bits, INT64_MAX, 0x7ff0000000000000);
    return dtype == HX_I64 ? bits ^ (uint64_t{1} << 63) : bits;
  }
};

template <typename Bits, typename Item>
void sort_lines(const SortContext& c, const void* from, void* to, int64_t* indices, void* room, uint32_t part) {
  const Range lines = share(c.outer * c.inner, c.parts, part);
  const Keys keys{c.dtype};
  Item *items = static_cast<Item*>(room) + 2 * c.size * part, *others = items + c.size;
  for (int64_t l = lines.begin; l < lines.end; ++l) {
    const int64_t first = l / c.inner * c.size * c.inner + l % c.inner;
    const Bits* x = static_cast<const Bits*>(from) + first;
    Bits* y = static_cast<Bits*>(to) + first;
    for (int64_t i = 0; i < c.size; ++i) {
      const Bits key = keys.of(x[i * c.inner]);
      set(items[i], c.descending ? static_cast<Bits>(~key) : key, i);
    }
    const Item* sorted = sort_items(items, others, c.size, sizeof(Bits));
    for (int64_t i = 0; i < c.size; ++i) {
      const int64_t index = index_of(sorted[i]);
      indices[first + i * c.inner] = index;
      y[i * c.inner] = x[index * c.inner];
    }
  }
}

}  // namespace

void sort(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const SortContext*>(context);
  int64_t* indices = static_cast<int64_t*>(buffers[2]);
  switch (c.element_bytes) {
    case 1:
      return sort_lines<uint8_t, Narrow>(c, buffers[0], buffers[1], indices, buffers[3], part);
    case 2:
      return sort_lines<uint16_t, Narrow>(c, buffers[0], buffers[1], indices, buffers[3], part);
    case 4:
      return sort_lines<uint32_t, Narrow>(c, buffers[0], buffers[1], indices, buffers[3], part);
    default:
      return sort_lines<uint64_t, Wide>(c, buffers[0], buffers[1], indices, buffers[3], part);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(sort)

namespace harmonics::cpu {
namespace {

bool plan_sort(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const auto axis = static_cast<size_t>(site.integer("axis"));
  auto c = std::make_unique<SortContext>();
  c->size = x.dims[axis];
  c->inner = strides(x)[axis];
  c->outer = count(x) / (c->size * c->inner);
  c->dtype = x.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  c->descending = site.flag("descending");
  if (c->size > INT32_MAX) return false;  // indices of items have 32 bits
  c->parts = parts_for(static_cast<double>(count(x)) * (4 + c->element_bytes), c->outer * c->inner);
  const int64_t workspace = 2 * c->parts * c->size * sort_item_bytes(c->element_bytes);
  answer(out, std::move(c), chosen::sort(), "sort").workspace = static_cast<uint64_t>(workspace);
  return true;
}

}  // namespace

HM_PLANS(sort, {"sort", plan_sort})

}  // namespace harmonics::cpu

#endif
