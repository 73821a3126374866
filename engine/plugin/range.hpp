// What values an argument may have, as its schema writes it: "0..1", "1..", "0<..<1", "none|tanh".
#pragma once

#include <string>

#include "engine/tensor/attributes.hpp"

namespace harmonics {

// Can such a range be of an argument of this type (hx_argument_type)?
bool is_range(uint32_t type, const std::string& range);
// Lists: each of their numbers.
bool in_range(const AttributeValue& value, const std::string& range);
// "a value from 0 to 1", "a value above 0", "one of none, tanh".
std::string spoken_range(const std::string& range);

}  // namespace harmonics
