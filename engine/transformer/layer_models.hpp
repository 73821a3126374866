// Opens models from files as functions of flows; see engine/model/layer_model.hpp.
#pragma once

#include <memory>

#include "engine/model/layer_model.hpp"

namespace harmonics::engine {

// Opens a `.ndsl` file, a built-in model by name, or a file or folder that an importer reads. Trainable 16-bit matrices
// become f32; block types are unchanged unless the request names a type. Parameters of a folder without weights are
// initialised randomly.
std::shared_ptr<const LayerModel> open_layer_model(const LayerModelRequest& request, Registry& registry);

}  // namespace harmonics::engine
