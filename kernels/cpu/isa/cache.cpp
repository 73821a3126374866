#include "../cache.hpp"

#include "eight_bits.hpp"
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
    char* const to = y + (b * c.capacity + at + r % c.rows) * c.row_bytes;
    const char* const from = added + r * c.from_bytes;
    if (c.how == Append::narrow_f16)
      narrow_f16(reinterpret_cast<const float*>(from), reinterpret_cast<uint16_t*>(to), c.row);
    else if (c.how == Append::narrow_q8_0)
      narrow_q8_0(reinterpret_cast<const float*>(from), to, c.row);
    else
      std::memcpy(to, from, static_cast<size_t>(c.row_bytes));
  }
}

}  // namespace harmonics::cpu::HM_ISA
