#include "engine/flow/layer_change.hpp"

#include <fmt/core.h>

namespace harmonics::engine {

std::string LayerChange::text() const {
  std::string all;
  for (const Argument& a : arguments)
    all += fmt::format("{}{} = {} (was {})", all.empty() ? "" : ", ", a.name, value_or_standard(a.after, a),
                       value_or_standard(a.before, a));
  return fmt::format("'{}' has {}", layer, all);
}

}  // namespace harmonics::engine
