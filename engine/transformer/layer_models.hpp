// Opens models from files as functions of flows; see engine/model/layer_model.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "engine/model/layer_model.hpp"

namespace harmonics::engine {

// Opens a `.ndsl` file, a built-in model by name, or a file or folder that an importer reads. Trainable 16-bit matrices
// become f32; block types are unchanged unless the request names a type. Parameters of a folder without weights are
// initialised randomly.
std::shared_ptr<const LayerModel> open_layer_model(const LayerModelRequest& request, Registry& registry);

// Returns the longest sequence in tokens of such a model with these settings, without initialising parameters. Throws
// the errors of reading the model.
int64_t context_of_model(const std::string& path_or_name, const std::map<std::string, std::string>& set,
                         Registry& registry);

}  // namespace harmonics::engine
