// The architectures of imported models.
#pragma once

#include <optional>

#include "engine/model/imported.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

struct ModelOptions {
  // Type to convert matrices to, in memory, whose rows are whole blocks of it; none: as they are in the file.
  std::optional<DType> weights;
  DType cache = DType::F32;  // or F16, Q8_0
};

// The model whose architecture the metadata names, over the tensors where they lie in their file. Throws
// ErrorKind::Weights, with the known architectures, for another one.
Model model_of(const ImportedModel& imported, const ModelOptions& options = {});

}  // namespace harmonics::engine
