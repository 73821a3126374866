// Prints a model as a single self-contained `.ndsl` file.
#pragma once

#include <string>

#include "dsl/ndsl/model_file.hpp"

namespace harmonics::engine::ndsl {

// Parsing the text gives an equal model, except for positions.
std::string printed_model(const ModelFile& model);

}  // namespace harmonics::engine::ndsl
