// Weight files in a Hugging Face model folder.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

// Returns the paths of weight files that a new export with these file names makes obsolete: model.safetensors, the
// index, and the files that the existing index names. Does not include other files.
std::vector<std::string> former_weights(const std::string& folder, const std::vector<std::string>& written);

}  // namespace harmonics::engine
