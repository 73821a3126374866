// Unpaired: the handling of samples without a partner in another stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace harmonics::engine {

// Handling of an incomplete group of samples.
enum class Unpaired : uint8_t {
  drop,    // leave it out
  last,    // repeat the last sample of the stream that lacks one; without a last sample, leave the group out
  stop,    // end the run
  refuse,  // as stop, and refuse streams of known and different length beforehand
};
// Parses "drop", "last", "stop" or "refuse"; empty for any other text.
std::optional<Unpaired> parse_unpaired(const std::string& text);

}  // namespace harmonics::engine
