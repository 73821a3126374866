// The architectures of imported models.
#pragma once

#include "engine/model/imported.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// The model whose architecture the metadata names, over the tensors where they lie in their file. Throws
// ErrorKind::Weights, with the known architectures, for another one.
Model model_of(const ImportedModel& imported);

}  // namespace harmonics::engine
