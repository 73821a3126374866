// Conversion of weights trained by a flow to tensors of the model's original file.
#pragma once

#include <map>
#include <string>

#include "engine/model/imported.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/ndsl_compile.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// Returns the tensors of the model, by their names in the file, with the values of `trained` (read from the file
// `name`), whose tensors have a common prefix: "scores.model.blk.0.attn_q.weight". Tensors that `trained` lacks were
// not trained and are unchanged. `learner`: the model as it was trained. A folder's rotary pairs may lie half a head
// apart there and in adjacent rows in `imported`, which is the folder read as a whole; rows are reordered.
// Throws ErrorKind::Weights if no prefix or several have tensors of the model, shapes differ, or some but not all
// experts of a stack are there.
std::map<std::string, HTensor> trained_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                               const ResolvedSpec& learner, const TensorFile& trained,
                                               const std::string& name);

// Returns whether the file contains tensors of the model with a prefix, as saved by flows.
bool has_trained_tensors(const CompiledNdsl& compiled, const TensorFile& trained);
// Returns every tensor of a described model, with separate experts. Throws as above, and ErrorKind::Weights, with their
// names, if the file lacks tensors.
std::map<std::string, HTensor> trained_tensors(const CompiledNdsl& compiled, const TensorFile& trained,
                                               const std::string& name);

}  // namespace harmonics::engine
