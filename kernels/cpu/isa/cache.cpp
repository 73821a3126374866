#include "../cache.hpp"

#include "eight_bits.hpp"
#include "kernels.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Writes n elements; for q8_0 these are whole blocks.
void append_row(const AppendContext& c, const char* from, char* to, int64_t n, int64_t bytes) {
  if (c.how == Append::narrow_f16)
    narrow_f16(reinterpret_cast<const float*>(from), reinterpret_cast<uint16_t*>(to), n);
  else if (c.how == Append::narrow_q8_0)
    narrow_q8_0(reinterpret_cast<const float*>(from), to, n);
  else
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Returns the address of row `row` of a batch item in its pages; null if it is out of range.
char* row_in_pages(const AppendContext& c, const int32_t* table, int64_t row, char* pool) {
  if (row < 0 || row >= c.entries * c.capacity) return nullptr;
  const int64_t page = table[row / c.capacity];
  return page < 0 || page >= c.pool ? nullptr : pool + (page * c.capacity + row % c.capacity) * c.row_bytes;
}

// Writes the part's elements of every row in order, so that the last of several rows at one position remains.
void append_to_pages(const AppendContext& c, void* const* buffers, uint32_t part) {
  const char* added = static_cast<const char*>(buffers[1]);
  const auto *start = static_cast<const int32_t*>(buffers[2]), *pages = static_cast<const int32_t*>(buffers[3]);
  const int64_t first = part * c.share, n = first + c.share < c.row ? c.share : c.row - first;
  if (n <= 0) return;
  const int64_t from_size = c.from_bytes / c.row;
  const int64_t to_first = c.how == Append::narrow_q8_0  ? first / kEightBlock * kEightBytes
                           : c.how == Append::narrow_f16 ? first * 2
                                                         : first * from_size;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t r = 0; r < c.rows; ++r)
      if (char* const to = row_in_pages(c, pages + b * c.entries, start[b] + r, static_cast<char*>(buffers[4])))
        append_row(c, added + (b * c.rows + r) * c.from_bytes + first * from_size, to + to_first, n, n * from_size);
}

}  // namespace

// Phases: copy the cache, skipped in place; write the new rows.
void cache_append(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const AppendContext*>(context);
  const char *x = static_cast<const char*>(buffers[0]), *added = static_cast<const char*>(buffers[1]);
  const auto* start = static_cast<const int32_t*>(buffers[2]);
  char* y = static_cast<char*>(buffers[c.entries ? 4 : 3]);
  if (phase == 0) {
    const Range bytes = share(c.whole_bytes, c.copy_parts, part);
    if (y != x) std::memcpy(y + bytes.begin, x + bytes.begin, static_cast<size_t>(bytes.end - bytes.begin));
    return;
  }
  if (c.entries) return append_to_pages(c, buffers, part);
  const Range rows = share(c.batch * c.rows, c.parts, part);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t b = r / c.rows, last = c.capacity - c.rows, at = start[b] < 0 ? 0 : start[b] > last ? last : start[b];
    append_row(c, added + r * c.from_bytes, y + (b * c.capacity + at + r % c.rows) * c.row_bytes, c.row, c.row_bytes);
  }
}

}  // namespace harmonics::cpu::HM_ISA
