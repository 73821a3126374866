// A model as the text of one `.ndsl` file that needs no other.
#pragma once

#include <string>

#include "dsl/ndsl/model_file.hpp"

namespace harmonics::engine::ndsl {

// Reading the text gives the same model, with other places.
std::string printed_model(const ModelFile& model);

}  // namespace harmonics::engine::ndsl
