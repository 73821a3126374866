// Offsets of buffers in one arena. Buffers that are alive at the same time do not overlap.
#pragma once

#include <cstdint>
#include <vector>

namespace harmonics::engine {

inline constexpr uint64_t kArenaAlignment = 64;

struct BufferSpan {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;  // first and last step, inclusive
};

struct Placement {
  std::vector<uint64_t> offsets;  // by buffer, multiples of kArenaAlignment
  uint64_t bytes = 0;             // of the arena
};

// Places the largest buffers first, each into the tightest gap between those placed before. More than 8,192 buffers are
// placed in step order, in O(n log n). Empty buffers take no space.
Placement place_buffers(const std::vector<BufferSpan>& buffers);

}  // namespace harmonics::engine
