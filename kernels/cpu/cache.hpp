// Rows appended to a cache.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// What happens to appended rows.
enum class Append : uint32_t { copy, narrow_f16, narrow_q8_0 };

constexpr int64_t kAppendShare = 64;  // elements: whole blocks of q8_0

struct AppendContext {
  int64_t batch, capacity, rows, row;  // rows appended to each batch item; elements of a row
  int64_t row_bytes, from_bytes;       // of a row in the cache, of an appended one
  int64_t whole_bytes;
  Append how;
  // Tables [batch, entries] of the pages of a pool, which has `pool` of `capacity` rows; entries 0: there are none.
  int64_t entries, pool;
  uint32_t copy_parts, parts;  // first the whole is copied, unless the result has its memory
  int64_t share;  // with tables a part has so many elements of every row, so that rows are written in order
};

}  // namespace harmonics::cpu
