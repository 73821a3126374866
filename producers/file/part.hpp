// part=0-0.9: a fraction of a source, so that one file serves training and test.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace harmonics {

// The range [first, last) of `count` things; "" is all of them. Bounds are rounded down, so parts that meet share
// nothing.
std::pair<uint64_t, uint64_t> part_of(const std::string& text, uint64_t count, const std::string& file);

}  // namespace harmonics
