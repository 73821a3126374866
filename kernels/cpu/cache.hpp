// Rows appended to a cache.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct AppendContext {
  int64_t batch, capacity, rows, row;  // rows appended to each batch item; elements of a row
  int64_t element_bytes;               // of the cache
  int64_t whole_bytes;
  bool narrows;                // f32 rows into an f16 cache
  uint32_t copy_parts, parts;  // first the whole is copied, unless the result has its memory
};

}  // namespace harmonics::cpu
