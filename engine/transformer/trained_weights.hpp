// Weights that a flow has trained, as the tensors of the file that its model came from.
#pragma once

#include <map>
#include <string>

#include "engine/model/imported.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/ndsl_compile.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// The tensors of the model, by the file's names, with the elements that `trained` (of the file `name`) has for them
// behind a prefix that all share: "scores.model.blk.0.attn_q.weight". Those that it lacks stay as they are: they did
// not learn. Throws ErrorKind::Weights if no prefix or several have tensors of the model, or shapes differ.
std::map<std::string, HTensor> trained_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                               const TensorFile& trained, const std::string& name);

// Whether the file has tensors of the model behind a prefix, as a flow saves them.
bool has_trained_tensors(const CompiledNdsl& compiled, const TensorFile& trained);
// Every tensor of a described model, experts one by one. Throws as trained_tensors(), and ErrorKind::Weights with the
// names of tensors that the file lacks.
std::map<std::string, HTensor> trained_tensors(const CompiledNdsl& compiled, const TensorFile& trained,
                                               const std::string& name);

}  // namespace harmonics::engine
