// CRC32C (Castagnoli), the checksum of a frame: the processor's own instruction where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace harmonics::wire {

// The checksum of what `before` is the checksum of, followed by `bytes`; of nothing it is 0.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The same by tables, on any processor.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before = 0);
bool crc32c_is_native();

}  // namespace harmonics::wire
