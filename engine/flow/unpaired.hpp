// Unpaired: how to handle samples without a partner in another stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace harmonics::engine {

// How to handle an incomplete group of samples.
enum class Unpaired : uint8_t {
  drop,    // leave the group out
  last,    // repeat the last sample of the stream that lacks one, or drop the group if there is none
  stop,    // end the run
  refuse,  // like stop, and also refuse streams of known and different lengths at the start
};
// Parses "drop", "last", "stop" or "refuse". Returns nothing for other texts.
std::optional<Unpaired> parse_unpaired(const std::string& text);

}  // namespace harmonics::engine
