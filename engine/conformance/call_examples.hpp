// Example calls to test functionals and implementations.
#pragma once

#include <string>
#include <vector>

#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_implementation.hpp"

namespace harmonics::engine {

// A call with its inputs.
struct CallExample {
  std::string op;
  AttributeMap attributes;
  std::vector<HTensor> inputs;

  std::string str() const;  // "silu(f32[3, 5])"
};

// Calls of a plugin's functional, with arguments from arguments_to_try(): x and one input per argument that names a
// layer, in odd sizes; if rejected, more inputs; of one shape, and of shapes that fit together.
std::vector<CallExample> calls_of_item(const Item& functional, DType type, uint64_t seed);

// Calls accepted by a functional or primitive: conformance cases for the library's functionals, their uses of
// primitives, and calls as above for a plugin's functional. Empty if the operation or examples for it are unknown.
std::vector<CallExample> calls_of(const std::string& op, DType type, uint64_t seed);

// Tolerance of a type, relative to the largest result.
double tolerance_of(DType type);
// Describes where results differ by more; "" if they do not. Integers must be equal.
std::string difference(const HTensor& got, const HTensor& expected, const char* by, double tolerance);
inline std::string difference(const HTensor& got, const HTensor& expected, const char* by) {
  return difference(got, expected, by, tolerance_of(expected.dtype()));
}

// The call's site. Throws errors of its types.
CallSiteInfo site_of(const CallExample& call, bool training);

}  // namespace harmonics::engine
