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
  std::optional<ArgumentValue> value;  // none: as if it were not written
};

struct ConfiguredFlow {
  Flow flow;                           // its spans are those of the old text
  std::vector<ArgumentChange> before;  // what undoes the changes, in their order
};

// The value of an argument as text, by the type that the function gives it: "0.3", "[3, 3]", "tanh". Empty: none.
struct ArgumentText {
  std::string argument, value;
};

// Returns the flow with these arguments of functions on arrows into `layer`, in every cycle and branch. The result is
// to be resolved as any flow: ranges, widths and weights are checked there. `harmonic`: "": the first. Throws
// ErrorKind::Name, with the nearest name, for an unknown layer or argument, and for one that several functions have;
// ErrorKind::Type for a text that is no value of the argument.
ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentText>& changes, Registry& registry);
// The same with values, such as ConfiguredFlow::before.
ConfiguredFlow configured(const Flow& flow, const std::string& harmonic, const std::string& layer,
                          const std::vector<ArgumentChange>& changes, Registry& registry);

}  // namespace harmonics::engine
