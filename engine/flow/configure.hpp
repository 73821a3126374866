// Changes arguments of functions on the arrows into a layer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/flow/flow.hpp"
#include "engine/flow/layer_change.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct ArgumentChange {
  std::string argument;                // "rate", or "dropout.rate" if several functions have a 'rate'
  std::optional<ArgumentValue> value;  // empty: remove the argument
};

struct ConfiguredFlow {
  Flow flow;                                  // spans refer to the old text
  std::vector<ArgumentChange> before, after;  // previous and new values, in the order of the changes
  std::vector<std::string> standards;         // their defaults as text; "" if there is none
};

// Returns the flow with new values for arguments of functions on arrows into `layer`, in all cycles and branches.
// Ranges, widths and weights are checked when the result is resolved. `harmonic` is a name; "" selects the first.
// Throws ErrorKind::Name, with the nearest name, if the layer or argument is unknown or several functions have the
// argument; ErrorKind::Type if a text is not a value of the argument.
ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentText>& changes, Registry& registry);
// Same as above, with values such as those of ConfiguredFlow::before.
ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentChange>& changes, Registry& registry);

}  // namespace harmonics::engine
