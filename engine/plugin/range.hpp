// Ranges of argument values, as written in schemas: "0..1", "1..", "0<..<1", "none|tanh".
#pragma once

#include <string>

#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

// Returns whether the range is valid for this type of argument (hx_argument_type).
bool is_range(uint32_t type, const std::string& range);
// Returns whether the value, or each number of a list, is in the range.
bool in_range(const AttributeValue& value, const std::string& range);
// Describes a range for messages: "a value from 0 to 1", "a value above 0", "one of none, tanh".
std::string spoken_range(const std::string& range);

}  // namespace harmonics::engine
