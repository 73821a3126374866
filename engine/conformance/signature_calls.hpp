// Calls of a plugin's functional made from its signature.
#pragma once

#include <string>
#include <vector>

#include "engine/conformance/call_examples.hpp"
#include "engine/program/signature.hpp"

namespace harmonics::engine {

// Axes of one name have one size, "..." stands for none, one or two axes; indices lie below their limits. With and
// without optional inputs. Only calls that the body accepts; none where the signature does not say enough.
std::vector<CallExample> calls_by_signature(const std::string& op, const Signature& signature,
                                            const AttributeMap& attributes, DType type, uint64_t seed);

}  // namespace harmonics::engine
