#include "../cache.hpp"

#include <cstring>

#include "half_floats.hpp"
#include "kernels.hpp"

namespace harmonics::cpu::HM_ISA {

// In place only the new rows are written.
void cache_append(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const AppendContext*>(context);
  const char *x = static_cast<const char*>(buffers[0]), *added = static_cast<const char*>(buffers[1]);
  const auto* start = static_cast<const int32_t*>(buffers[2]);
  char* y = static_cast<char*>(buffers[3]);
  if (phase == 0) {
    const Range bytes = share(c.whole_bytes, c.copy_parts, part);
    if (y != x) std::memcpy(y + bytes.begin, x + bytes.begin, static_cast<size_t>(bytes.end - bytes.begin));
    return;
  }
  const Range rows = share(c.batch * c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t b = r / c.rows, last = c.capacity - c.rows, at = start[b] < 0 ? 0 : start[b] > last ? last : start[b];
    char* to = y + (b * c.capacity + at + r % c.rows) * c.row * c.element_bytes;
    if (c.narrows)
      narrow_f16(reinterpret_cast<const float*>(added) + r * c.row, reinterpret_cast<uint16_t*>(to), c.row);
    else
      std::memcpy(to, added + r * c.row * c.element_bytes, static_cast<size_t>(c.row * c.element_bytes));
  }
}

}  // namespace harmonics::cpu::HM_ISA
