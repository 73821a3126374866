// Generates calls of a plugin's functional from its signature.
#pragma once

#include <string>
#include <vector>

#include "engine/conformance/call_examples.hpp"
#include "engine/program/signature.hpp"

namespace harmonics::engine {

// Returns calls that match the signature and that the body accepts, with and without optional inputs. Axes of one name
// have one size, "..." is replaced by none, one or two axes, and indices are below their limits. Empty if the signature
// is incomplete.
std::vector<CallExample> calls_by_signature(const std::string& op, const Signature& signature,
                                            const AttributeMap& attributes, DType type, uint64_t seed);

}  // namespace harmonics::engine
