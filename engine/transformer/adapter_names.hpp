// Names of adapted weights: Hugging Face modules, as in PEFT files, and GGUF tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// Returns the GGUF weight of a module: "blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj"; "" if unknown.
// "{e}" stands for the number of an expert: "model.layers.0.mlp.experts.{e}.up_proj".
std::string weight_of_module(std::string_view module);

// A weight of a module, possibly one expert of it.
struct ModuleWeight {
  std::string key;           // in ResolvedSpec::weights()
  int64_t expert = -1;       // number of the expert; -1: none
  WeightModule module = {};  // rows == 0: the weight has all rows of the module
};
// Returns the weights of a module in this model, by the modules that the model declares, by Hugging Face names, or by
// weight_of_module(). Empty if there are none.
std::vector<ModuleWeight> weights_of_module(std::string_view module, const ResolvedSpec& resolved);

// Rows of a weight that an adapter can change.
struct AdapterTarget {
  std::string name;     // "q_proj"
  std::string other;    // last part of the module's name, if it differs
  WeightModule module;  // "model.layers.0.self_attn.q_proj"; for a part, that of the whole weight
  std::string key;      // in ResolvedSpec::weights()
  ValueId x = 0;        // the value that the map reads
  int64_t from = 0, rows = 0, whole = 0, width = 0;  // rows [from, from + rows) of `whole`, each of this width
  int64_t experts = 0;                               // above 0: number of matrices of this size
  bool looked_up = false;
  bool by_default = false;  // included in "all-linear"

  bool is_part() const { return rows != whole; }
};
// Returns the targets of a model, in the order of its steps.
std::vector<AdapterTarget> adapter_targets(const ResolvedSpec& resolved);

// Returns the width of a head if rotary pairs are adjacent rows of this weight, and half a head apart in its module;
// otherwise 0.
int64_t width_of_adjacent_pairs(const ResolvedSpec& resolved, const std::string& key);

// Returns the modules of a model's weights by the hf_mapping of its spec.
std::map<std::string, WeightModule> modules_of_folder(const ResolvedSpec& resolved, const ModelMetadata& metadata);

}  // namespace harmonics::engine
