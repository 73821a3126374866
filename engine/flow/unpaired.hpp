// What a cycle does with samples that have no partner in another stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace harmonics {

// What becomes of a group of samples that lacks some.
enum class Unpaired : uint8_t {
  drop,    // it is left out
  last,    // the last sample of the stream that lacks one stands in for it; without one it is left out
  stop,    // the run ends
  refuse,  // likewise, and streams of known and different length are refused beforehand
};
// "drop", "last", "stop" or "refuse"; empty: none of them.
std::optional<Unpaired> parse_unpaired(const std::string& text);

}  // namespace harmonics
