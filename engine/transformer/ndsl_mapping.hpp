// hf_mapping of a `.ndsl` model: maps tensors of a Hugging Face folder to those of the model, and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <harmonics/tensor.hpp>

#include "engine/transformer/ndsl_compile.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// Returns the tensors of a folder with this model, by name; experts that are stacked in the model are separate tensors.
// Throws SourceErrors for a mapping that names no tensor of the model, maps one twice, or is incompatible with its
// shape; ErrorKind::Weights, with the names, for tensors that the mapping omits.
std::map<std::string, Shape> folder_tensors(const CompiledNdsl& model);

// Adds the errors of hf_mapping to `faults`, for models that may have other errors.
void check_mapping(const CompiledNdsl& model, NdslFaults& faults);

// Returns the Hugging Face modules by matrix of the model, for adapters.
std::map<std::string, WeightModule> modules_of(const CompiledNdsl& model);

// Tensors of a folder that do not match the model.
struct NdslMisfits {
  std::vector<std::string> missing, surplus, misshapen;  // names; misshapen also with both shapes
  bool any() const { return !missing.empty() || !surplus.empty() || !misshapen.empty(); }
};
// `have`: shapes by name, which are compared only if `known_shapes`.
NdslMisfits misfits_of(const CompiledNdsl& model, const std::map<std::string, Shape>& have, bool known_shapes = true);

// Converts tensors of a folder to those of the model, by name; stacked experts become "NAME[0]" and so on. Results are
// views if their rows are contiguous in the source. Throws ErrorKind::Weights, with all names, if the tensors do not
// match. `folder` is for messages.
std::map<std::string, HTensor> import_mapped(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors,
                                             const std::string& folder);
// The inverse of import_mapped().
std::map<std::string, HTensor> export_mapped(const CompiledNdsl& model, const std::map<std::string, HTensor>& tensors);

}  // namespace harmonics::engine
