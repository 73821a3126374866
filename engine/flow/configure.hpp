// Changes arguments of the functions in the arrows into a layer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/flow/flow.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct ArgumentChange {
  std::string argument;                // "rate", or "dropout.rate" where several functions have a 'rate'
  std::optional<ArgumentValue> value;  // none: the argument is omitted
};

struct ConfiguredFlow {
  Flow flow;                           // its spans are those of the old text
  std::vector<ArgumentChange> before;  // the former values, in the order of the changes
};

// The value of an argument as text, by the type that the function gives it: "0.3", "[3, 3]", "tanh". Empty: none.
struct ArgumentText {
  std::string argument, value;
};

// Returns the flow with new values for arguments of functions on arrows into `layer`, in every cycle and branch.
// Ranges, widths and weights are checked when the result is resolved. `harmonic`: its name; "": the first. Throws
// ErrorKind::Name, with the nearest name, for an unknown layer or argument and for an argument of several functions;
// ErrorKind::Type for a text that is not a value of the argument.
ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentText>& changes, Registry& registry);
// The same with values, such as ConfiguredFlow::before.
ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentChange>& changes, Registry& registry);

}  // namespace harmonics::engine
