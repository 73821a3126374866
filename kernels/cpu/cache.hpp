// Appends rows to a key-value cache.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// Conversion of appended rows.
enum class Append : uint32_t { copy, narrow_f16, narrow_q8_0 };

constexpr int64_t kAppendShare = 64;  // granule of a share, elements: whole q8_0 blocks

struct AppendContext {
  int64_t batch, capacity, rows, row;  // rows: appended to each batch item; row: elements per row
  int64_t row_bytes, from_bytes;       // bytes of a row in the cache and of an appended row
  int64_t whole_bytes;
  Append how;
  // Page tables [batch, entries] into a pool of `pool` pages of `capacity` rows; entries 0: not paged.
  int64_t entries, pool;
  uint32_t copy_parts, parts;  // copy_parts: phase that copies the cache, skipped in place
  int64_t share;  // paged: elements of every row that belong to one part, so that a part writes rows in order
};

}  // namespace harmonics::cpu
