// The key `lora` of a training configuration.
#pragma once

#include <string>

#include "dsl/document/fields.hpp"

namespace harmonics::engine::cli {

// The settings of an adapter, as parse_lora() reads them: of such a text, or of a map with the names of PEFT, such as
// `lora_alpha` and `target_modules`. What is wrong is a problem at its place; then the text is "".
std::string lora_of_configuration(const document::Node& node, document::Problems& problems);

}  // namespace harmonics::engine::cli
