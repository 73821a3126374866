// Names of parameters in files of PyTorch.
#pragma once

#include "engine/flow/graph.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::engine {

// Renames the tensors of functions `norm`, where PyTorch's modules have other names: weight to gain, running_var to
// running_variance. A tensor whose own name is in the file too keeps its name. Counters (num_batches_tracked) are
// dropped.
void rename_torch_norms(const Graph& graph, TensorFile& file);

}  // namespace harmonics::engine
