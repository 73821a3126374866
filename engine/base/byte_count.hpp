// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace harmonics {

// "2000000", "512M", "4G" (powers of 1024); none: it is no such number, or zero, or beyond 2^60.
std::optional<uint64_t> parse_byte_count(const std::string& text);

}  // namespace harmonics
