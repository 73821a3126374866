#include "engine/flow/unpaired.hpp"

namespace harmonics::engine {

std::optional<Unpaired> parse_unpaired(const std::string& text) {
  if (text == "drop") return Unpaired::drop;
  if (text == "last") return Unpaired::last;
  if (text == "stop") return Unpaired::stop;
  if (text == "refuse") return Unpaired::refuse;
  return std::nullopt;
}

}  // namespace harmonics::engine
