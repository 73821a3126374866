// Appends rows to a key-value cache.
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

// Conversion of appended rows.
enum class Append : uint32_t { copy, narrow_f16, narrow_bf16, narrow_q8_0 };

constexpr int64_t kAppendShare = 64;  // granule of a share, elements: whole q8_0 blocks

struct AppendContext {
  int64_t batch, capacity, rows, row;  // rows: appended to each batch item; row: elements per row
  int64_t row_bytes, from_bytes;       // bytes of a row in the cache and of an appended row
  int64_t whole_bytes;
  Append how;
  // Page tables [batch, entries] into a pool of `pool` pages of `capacity` rows; entries 0: not paged.
  int64_t entries, pool;
  uint32_t parts;
  int64_t share;  // paged: elements of every row that belong to one part, so that a part writes rows in order
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "eight_bits.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Writes n elements; for q8_0 these are whole blocks.
void append_row(const AppendContext& c, const char* from, char* to, int64_t n, int64_t bytes) {
  if (c.how == Append::narrow_f16)
    narrow_f16(reinterpret_cast<const float*>(from), reinterpret_cast<uint16_t*>(to), n);
  else if (c.how == Append::narrow_bf16)
    narrow_bf16(reinterpret_cast<const float*>(from), reinterpret_cast<uint16_t*>(to), n);
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
  const int64_t to_first = c.how == Append::copy          ? first * from_size
                           : c.how == Append::narrow_q8_0 ? first / kEightBlock * kEightBytes
                                                          : first * 2;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t r = 0; r < c.rows; ++r)
      if (char* const to = row_in_pages(c, pages + b * c.entries, start[b] + r, static_cast<char*>(buffers[4])))
        append_row(c, added + (b * c.rows + r) * c.from_bytes + first * from_size, to + to_first, n, n * from_size);
}

}  // namespace

// Phases: copy the cache, skipped in place; write the new rows. One part copies: to hand out parts of nothing costs
// more than a token's rows.
void cache_append(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const AppendContext*>(context);
  const char *x = static_cast<const char*>(buffers[0]), *added = static_cast<const char*>(buffers[1]);
  const auto* start = static_cast<const int32_t*>(buffers[2]);
  char* y = static_cast<char*>(buffers[c.entries ? 4 : 3]);
  if (phase == 0) {
    if (y != x) std::memcpy(y, x, static_cast<size_t>(c.whole_bytes));
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

#else

HM_VECTOR_CODE(cache_append)

namespace harmonics::cpu {
namespace {

bool plan_cache_append(const Site& site, hx_kernel& out) {
  const hx_type &cache = site.in(0), &rows = site.in(1), &start = site.in(2);
  const bool narrows = (kernels::is_half(cache.dtype) || cache.dtype == HX_Q8_0) && is_f32(rows);
  const bool paged = site.inputs() == 4;
  if (paged != (site.text("operands") == "pages") || (paged && site.in(3).dtype != HX_I32)) return false;
  if (start.dtype != HX_I32 || (!narrows && (cache.dtype != rows.dtype || site.has_stored()))) return false;
  auto c = std::make_unique<AppendContext>();
  c->batch = rows.dims[0];
  c->capacity = cache.dims[1];
  c->rows = rows.dims[1];
  c->row = count(rows) / (c->batch * c->rows);
  c->row_bytes = static_cast<int64_t>(run_bytes(static_cast<DType>(cache.dtype), c->row));
  c->from_bytes = c->row * width(rows.dtype);
  c->whole_bytes = cache.dims[0] * c->capacity * c->row_bytes;
  c->how = !narrows                 ? Append::copy
           : cache.dtype == HX_F16  ? Append::narrow_f16
           : cache.dtype == HX_BF16 ? Append::narrow_bf16
                                    : Append::narrow_q8_0;
  const double block = static_cast<double>(count(rows)) * 4;
  const double nanoseconds = 0.1 * block + 6.0 * static_cast<double>(c->batch * c->rows);
  c->entries = paged ? site.in(3).dims[1] : 0;
  c->pool = cache.dims[0];
  c->parts = parts_for(nanoseconds, paged ? (c->row + kAppendShare - 1) / kAppendShare : c->batch * c->rows);
  c->share = ((c->row + c->parts - 1) / c->parts + kAppendShare - 1) / kAppendShare * kAppendShare;
  const std::vector<uint32_t> parts = {1, c->parts};
  answer(out, std::move(c), chosen::cache_append(), paged ? "paged cache append" : "cache append", parts).in_place = 1;
  return true;
}

}  // namespace

HM_PLANS(cache, {"cache_append", plan_cache_append})

}  // namespace harmonics::cpu

#endif
