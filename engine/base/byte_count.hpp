// Parses byte counts in readable form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace harmonics::engine {

// Parses "2000000", "512M", "4G", "4Gi", "4GiB" (powers of 1024). Returns none for other text, zero and values above
// 2^60.
std::optional<uint64_t> parse_byte_count(const std::string& text);

}  // namespace harmonics::engine
