// Where buffers lie in one arena, so that those alive at the same time do not overlap.
#pragma once

#include <cstdint>
#include <vector>

namespace harmonics {

inline constexpr uint64_t kArenaAlignment = 64;

struct BufferSpan {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;  // steps, both included
};

struct Placement {
  std::vector<uint64_t> offsets;  // by buffer, multiples of kArenaAlignment
  uint64_t bytes = 0;             // of the arena
};

// Largest first, each into the tightest gap between the buffers placed before it; of more than 8,192 buffers, in the order of their steps, in a
// time that grows with n log n. Buffers without bytes take no room.
Placement place_buffers(const std::vector<BufferSpan>& buffers);

}  // namespace harmonics
