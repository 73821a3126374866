// Sorting along an axis.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// `outer` * `inner` lines of `size` elements. Each part has room for two lines of items in the workspace.
struct SortContext {
  int64_t outer, size, inner;
  uint32_t dtype, element_bytes, parts;
  bool descending;
};

// Bytes of an item, which holds the key of an element and its index.
constexpr int64_t sort_item_bytes(uint32_t element_bytes) { return element_bytes == 8 ? 16 : 8; }

}  // namespace harmonics::cpu
