// CRC32C (Castagnoli), the checksum of a frame: by the processor's own instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace harmonics::wire {

// The checksum of what `before` is the checksum of, followed by `bytes`; of nothing it is 0.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The ways this processor can do it, the slowest first; crc32c() takes the last.
struct Crc32cWay {
  const char* name;
  uint32_t (*sum)(std::span<const std::byte> bytes, uint32_t before);
};
std::span<const Crc32cWay> crc32c_ways();

}  // namespace harmonics::wire
