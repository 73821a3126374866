// Models of files as functions of flows: engine/model/layer_model.hpp.
#pragma once

#include <memory>

#include "engine/model/layer_model.hpp"

namespace harmonics::engine {

// Opens a `.ndsl` file, a built-in model by name, or a file or a folder that an importer reads. Matrices of 16 bits
// train as f32; blocks stay as they are unless the request names a type. Parameters of a folder without weights begin
// with random numbers.
std::shared_ptr<const LayerModel> open_layer_model(const LayerModelRequest& request, Registry& registry);

}  // namespace harmonics::engine
