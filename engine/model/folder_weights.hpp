// The files of weights in a folder of Hugging Face.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

// Paths of weight files in a folder that a new export with these file names replaces: model.safetensors, the index, and
// the files that the present index names. Other files are left alone.
std::vector<std::string> former_weights(const std::string& folder, const std::vector<std::string>& written);

}  // namespace harmonics::engine
