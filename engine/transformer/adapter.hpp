// LoRA adapters (Hu et al. 2021): pairs of small matrices that add scale · (x Aᵀ) Bᵀ to what weights compute. DoRA (Liu
// et al. 2024) gives the rows of the sum of both weights a length too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// The pair for one weight.
struct LowRank {
  // f32 [rank, width of x] and [rows of the weight, rank]; of a table that is looked up [rows of it, rank] and
  // [width, rank]; of experts stacks of these, [experts, rank, width] and [experts, rows, rank]
  HTensor a, b;
  double scale = 1;
  double alpha = 0;
  std::string name;     // of its tensors in the file, for messages
  HTensor magnitude{};  // DoRA: f32 [rows of the weight], else empty
  bool looked_up = false;
  int64_t rank() const { return a.shape()[looked_up || a.rank() == 3 ? 1 : 0]; }
  int64_t experts() const { return a.rank() == 3 ? a.shape()[0] : 0; }
  LowRank of_expert(int64_t number) const;
};

struct Adapter {
  std::string path, format;              // "GGUF" or "PEFT"
  double strength = 1;                   // part of each scale
  std::map<std::string, LowRank> pairs;  // by the name of the weight, as in ResolvedSpec::weights()
};

// Reads a GGUF file of the type "adapter", or a folder of PEFT: adapter_config.json and adapter_model.safetensors. Rows
// of q and k are reordered where the model's rotary pairs are neighbours, as in GGUF. Throws ErrorKind::Weights, with
// the names and both shapes, for an adapter of another architecture, of another kind than LoRA, or with tensors that no
// linear map of the model uses; ErrorKind::NoInput for files that cannot be read.
Adapter read_adapter(const AdapterFile& file, const ResolvedSpec& resolved, Registry& registry);
Adapter read_gguf_adapter(const AdapterFile& file, const ResolvedSpec& resolved, Registry& registry);

// Declares the matrices of the adapters as parameters of the model and lets the spec apply them. Weights that read the
// same x share one product with their A matrices, stacked; adapters of one weight are one pair of higher rank. Throws
// ErrorKind::Weights for DoRA on a weight that other adapters change too.
void apply_adapters(const std::vector<Adapter>& adapters, ResolvedSpec& resolved, ParameterStore& parameters);

// Sums of squares of the weight's rows, f32; of its columns if it is transposed.
HTensor row_squares(const HTensor& weight, bool transposed);
// The weight with the adapters' products added, in f32, or in f16 if it is stored in any other type.
HTensor merged_weight(const HTensor& weight, bool transposed, const std::vector<const LowRank*>& pairs);
// Likewise of a stack of experts.
HTensor merged_experts(const HTensor& stack, const std::vector<const LowRank*>& pairs);
// The tensors of the model, by the file's names, with the adapters merged into them. Throws ErrorKind::Weights for a
// weight that the file uses twice.
std::map<std::string, HTensor> merged_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                              const std::vector<Adapter>& adapters);

}  // namespace harmonics::engine
