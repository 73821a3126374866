// part=0-0.9: a fraction of a source, so that one file provides training and test data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace harmonics {

// Returns the range [first, last) of `count` items; "" means all. Bounds are rounded down, so adjacent parts do not
// overlap.
std::pair<uint64_t, uint64_t> part_of(const std::string& text, uint64_t count, const std::string& file);

}  // namespace harmonics
