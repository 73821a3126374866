// CRC32C (Castagnoli), the checksum of a frame. Uses the processor's CRC instructions where available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace harmonics::wire {

// Returns the checksum of the bytes covered by `before` followed by `bytes`. The checksum of no bytes is 0.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The implementations this processor supports, slowest first; crc32c() uses the last.
struct Crc32cWay {
  const char* name;
  uint32_t (*sum)(std::span<const std::byte> bytes, uint32_t before);
};
std::span<const Crc32cWay> crc32c_ways();

}  // namespace harmonics::wire
