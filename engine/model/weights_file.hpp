// Weights of a flow from a file of any format that can be read.
#pragma once

#include <string>

#include "engine/model/sealed_file.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Reads safetensors and NPZ as read_weights(path) does, and other formats by the importer that recognizes the file.
// Metadata that is not text is left out. Throws ErrorKind::Weights, NoInput, or as import_model() does.
TensorFile read_weights(const std::string& path, Registry& registry);
// Same, without the moments and counters of a checkpoint.
TensorFile read_run_weights(const std::string& path, Registry& registry);

}  // namespace harmonics::engine
