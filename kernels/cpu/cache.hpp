// Rows appended to a cache.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// What happens to appended rows.
enum class Append : uint32_t { copy, narrow_f16, narrow_q8_0 };

struct AppendContext {
  int64_t batch, capacity, rows, row;  // rows appended to each batch item; elements of a row
  int64_t row_bytes, from_bytes;       // of a row in the cache, of an appended one
  int64_t whole_bytes;
  Append how;
  uint32_t copy_parts, parts;  // first the whole is copied, unless the result has its memory
};

}  // namespace harmonics::cpu
