// The files of weights in a folder of Hugging Face.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

// Paths of the files of weights that a folder no longer has with these names in it: model.safetensors, the index, and
// files that the index in it now names. Files that no index names are not the folder's.
std::vector<std::string> former_weights(const std::string& folder, const std::vector<std::string>& written);

}  // namespace harmonics::engine
