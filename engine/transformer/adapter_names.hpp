// Names of adapted weights: modules of Hugging Face, as PEFT writes them, and the tensors of GGUF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// The weight of GGUF for a module: "model.layers.0.self_attn.q_proj" is "blk.0.attn_q.weight". "": unknown.
std::string weight_of_module(std::string_view module);
// Likewise of this model, which may have the names of Hugging Face itself.
std::string weight_of_module(std::string_view module, const ResolvedSpec& resolved);

// Rows of a weight that an adapter can change.
struct AdapterTarget {
  std::string name;    // "q_proj"
  std::string module;  // "model.layers.0.self_attn.q_proj"; of a part that of the whole weight
  std::string key;     // of ResolvedSpec::weights()
  ValueId x = 0;       // that the map reads, equal for maps of one x
  int64_t from = 0, rows = 0, whole = 0, width = 0;  // rows of the weight's `whole`, whose rows are so wide
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
