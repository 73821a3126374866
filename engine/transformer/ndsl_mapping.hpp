// hf_mapping of a `.ndsl` model: tensors of a folder of Hugging Face to those of the model, and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/transformer/ndsl_compile.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// What a folder of this model holds, by name. Experts that lie stacked in a model are one tensor each.
// Throws SourceErrors for a mapping that names no tensor of the model, maps one twice, or cannot be applied to its
// shape; ErrorKind::Weights with the names of tensors that the mapping leaves out.
std::map<std::string, Shape> folder_tensors(const CompiledNdsl& model);

// Adds the errors of hf_mapping of a model that has other errors.
void check_mapping(const CompiledNdsl& model, NdslFaults& faults);

// The modules of Hugging Face by the matrices of the model, for adapters.
std::map<std::string, WeightModule> modules_of(const CompiledNdsl& model);

// Tensors of a folder that do not fit, by name.
struct NdslMisfits {
  std::vector<std::string> missing, surplus, misshapen;  // the last with both shapes
  bool any() const { return !missing.empty() || !surplus.empty() || !misshapen.empty(); }
};
// `have`: shapes by name; a rank of 0 with `known_shapes` false is any shape.
NdslMisfits misfits_of(const CompiledNdsl& model, const std::map<std::string, Shape>& have, bool known_shapes = true);

// The tensors of the model, by their names; stacked experts one by one, as "NAME[0]". They are views of those given
// where rows stay as they lie. Throws ErrorKind::Weights, with all names, if the tensors do not fit. `folder` is for
// messages.
std::map<std::string, HTensor> import_mapped(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors,
                                             const std::string& folder);
// The inverse.
std::map<std::string, HTensor> export_mapped(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors);

}  // namespace harmonics::engine
