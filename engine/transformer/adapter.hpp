// LoRA adapters (Hu et al. 2021): pairs of low-rank matrices that add scale · (x Aᵀ) Bᵀ to the result of a weight. DoRA
// (Liu et al. 2024) also sets the norms of the rows of the summed weight.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/transformer/resolved_spec.hpp"

namespace harmonics::engine {

// The pair of matrices for one weight.
struct LowRank {
  // f32 [rank, width of x] and [rows of the weight, rank]. For a lookup table: [rows of the table, rank] and
  // [width, rank]. For experts: [experts, rank, width] and [experts, rows, rank].
  HTensor a, b;
  double scale = 1;
  double alpha = 0;
  std::string name;     // name of its tensors in the file, for messages
  HTensor magnitude{};  // DoRA: f32 [rows of the weight]; otherwise empty
  bool looked_up = false;
  int64_t rank() const { return a.shape()[looked_up || a.rank() == 3 ? 1 : 0]; }
  int64_t experts() const { return a.rank() == 3 ? a.shape()[0] : 0; }
  LowRank of_expert(int64_t number) const;
};

struct Adapter {
  std::string path, format;              // "GGUF" or "PEFT"
  double strength = 1;                   // factor included in each scale
  std::map<std::string, LowRank> pairs;  // by key of the weight, as in ResolvedSpec::weights()
};

// Reads a GGUF file of type "adapter", or a PEFT folder: adapter_config.json and adapter_model.safetensors. Reorders
// rows of q and k if the model's rotary pairs are adjacent, as in GGUF. Throws ErrorKind::Weights, with names and
// shapes, for an adapter of another architecture, of another type than LoRA, or with tensors that no linear map of the
// model uses; ErrorKind::NoInput for files that cannot be read.
Adapter read_adapter(const AdapterFile& file, const ResolvedSpec& resolved, Registry& registry);
Adapter read_gguf_adapter(const AdapterFile& file, const ResolvedSpec& resolved, Registry& registry);

// Declares the matrices of the adapters as parameters of the model, and makes the spec apply them. Weights that read
// the same x share one product with their concatenated A matrices. Several adapters of one weight become one pair of
// higher rank. Throws ErrorKind::Weights for DoRA on a weight that other adapters also change.
void apply_adapters(const std::vector<Adapter>& adapters, ResolvedSpec& resolved, ParameterStore& parameters);

// Returns the sums of squares of the weight's rows, or of its columns if it is transposed, in f32.
HTensor row_squares(const HTensor& weight, bool transposed);
// Returns the weight with the adapters merged into it, in f32 if the weight is f32, otherwise in f16.
HTensor merged_weight(const HTensor& weight, bool transposed, const std::vector<const LowRank*>& pairs);
// Same for a stack of experts.
HTensor merged_experts(const HTensor& stack, const std::vector<const LowRank*>& pairs);
// Returns the tensors of the model, by their names in the file, with the adapters merged. Throws ErrorKind::Weights if
// an adapted tensor is used for several weights.
std::map<std::string, HTensor> merged_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                              const std::vector<Adapter>& adapters);

}  // namespace harmonics::engine
