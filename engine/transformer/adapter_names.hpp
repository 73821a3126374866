// Names of adapted weights: modules of Hugging Face, as PEFT writes them, and the tensors of GGUF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// The weight of GGUF for a module: "model.layers.0.self_attn.q_proj" is "blk.0.attn_q.weight". "": unknown. "{e}"
// stands for the number of an expert: "model.layers.0.mlp.experts.{e}.up_proj".
std::string weight_of_module(std::string_view module);

// A weight that a module has, or that has one matrix for each of several modules.
struct ModuleWeight {
  std::string key;           // of ResolvedSpec::weights()
  int64_t expert = -1;       // its number
  WeightModule module = {};  // .rows 0: all of the module's rows are the weight's
};
// Those of this model, which may say its modules itself, or have the names of Hugging Face. Empty: it has none.
std::vector<ModuleWeight> weights_of_module(std::string_view module, const ResolvedSpec& resolved);

// Rows of a weight that an adapter can change.
struct AdapterTarget {
  std::string name;     // "q_proj"
  std::string other;    // the last part of the module's name, where that is another one
  WeightModule module;  // "model.layers.0.self_attn.q_proj"; of a part that of the whole weight
  std::string key;      // of ResolvedSpec::weights()
  ValueId x = 0;        // that the map reads, equal for maps of one x
  int64_t from = 0, rows = 0, whole = 0, width = 0;  // rows of the weight's `whole`, whose rows are so wide
  int64_t experts = 0;                               // above 0: so many matrices of these sizes
  bool looked_up = false;
  bool by_default = false;  // "all-linear" means it

  bool is_part() const { return rows != whole; }
};
// Those of a model, in the order of its steps.
std::vector<AdapterTarget> adapter_targets(const ResolvedSpec& resolved);

// The width of a head if the model's rotary pairs are neighbours, as PEFT's are not; else 0.
int64_t width_of_interleaved_heads(const ResolvedSpec& resolved);
// Whether rows of this weight are reordered for such pairs: it is of q or k.
bool has_rotary_rows(std::string_view key);

}  // namespace harmonics::engine
