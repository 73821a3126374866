// Calls to try functionals and their implementations on.
#pragma once

#include <string>
#include <vector>

#include "engine/conformance/item_checks.hpp"
#include "engine/functional/plugin_implementation.hpp"

namespace harmonics {

// One call with its numbers.
struct CallExample {
  std::string op;
  AttributeMap attributes;
  std::vector<HTensor> inputs;

  std::string str() const;  // "silu(f32[3, 5])"
};

// Calls of a plugin's functional, its arguments as arguments_to_try has them: x and one more input for each argument
// that names a layer, in shapes with odd sizes; where it refuses these, more inputs; of one shape, and of shapes that
// belong together.
std::vector<CallExample> calls_of_item(const Item& functional, DType type, uint64_t seed);

// Calls that the named functional or primitive takes: the conformance cases of the library's own, for primitives where they
// occur in those, for a plugin's functional as above. None: there is no such operation, or none is known.
std::vector<CallExample> calls_of(const std::string& op, DType type, uint64_t seed);

// Rounding of a type that results may differ by, relative to the largest of them.
double tolerance_of(DType type);
// Where they differ by more; "": nowhere. Whole numbers agree exactly.
std::string difference(const HTensor& got, const HTensor& expected, const char* by, double tolerance);
inline std::string difference(const HTensor& got, const HTensor& expected, const char* by) {
  return difference(got, expected, by, tolerance_of(expected.dtype()));
}

// The site of the call. Throws what its types throw.
CallSiteInfo site_of(const CallExample& call, bool training);

}  // namespace harmonics
