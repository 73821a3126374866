// Generates example calls for the checks of functionals and implementations.
#pragma once

#include <string>
#include <vector>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_implementation.hpp"

namespace harmonics::engine {

// A call with inputs.
struct CallExample {
  std::string op;
  AttributeMap attributes;
  std::vector<HTensor> inputs;

  std::string str() const;  // "silu(f32[3, 5])"
};

// Returns calls of a plugin's functional with the arguments of arguments_to_try(). They follow its signature if there
// is one. Otherwise they have x and one input per argument that names a layer, and more inputs if that is rejected; the
// inputs have one shape, or shapes of common operations. Throws the functional's error if it accepts no call.
std::vector<CallExample> calls_of_item(const Item& functional, DType type, uint64_t seed);

// Returns calls that a functional or primitive accepts: conformance cases for a functional of the library, calls in the
// bodies of these for a primitive, and calls_of_item() for a plugin's functional. Empty if no examples are known.
std::vector<CallExample> calls_of(const std::string& op, DType type, uint64_t seed);

// Returns the tolerance of a type, relative to the largest result (at least 1).
double tolerance_of(DType type);
// Describes the first element that differs by more than the tolerance; "" if none does. Integers must be equal.
std::string difference(const HTensor& got, const HTensor& expected, const char* by, double tolerance);
inline std::string difference(const HTensor& got, const HTensor& expected, const char* by) {
  return difference(got, expected, by, tolerance_of(expected.dtype()));
}

// Returns the call's site. Throws the operation's error if it rejects the types.
CallSiteInfo site_of(const CallExample& call, bool training);

}  // namespace harmonics::engine
