// Compiler for `.ndsl` models. The result contains the operations of each layer's block, and a spec of the whole model,
// which is applied to weights like specs in JSON.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <harmonics/abi.h>

#include "dsl/ndsl/model_file.hpp"
#include "dsl/spec/spec.hpp"
#include "engine/tensor/type.hpp"
#include "engine/transformer/ndsl_settings.hpp"

namespace harmonics::engine {

// Operations of one layer, by name ("LN1", "QKV", …).
struct BlockSpec {
  std::string variant;  // dense, parallel, moe
  std::vector<std::string> forward_ops;
  bool use_qk_norm = false;
  bool ln2_on_residual_att = false;  // the second norm reads the sum of the residual stream and the attention
  bool operator==(const BlockSpec&) const = default;
};

// A tensor of the model.
struct NdslTensor {
  std::string name;  // "blk.0.attn_q.weight", as in GGUF
  Shape shape;
  hx_init init{};       // initial values, used without weights
  int64_t experts = 0;  // above 0: shape[0], with one parameter per expert
  int64_t heads = 0;    // number of heads that rows belong to; 0: none
  ndsl::Place place;    // position of the operation
};

// A name used in hf_mapping, for one tensor of the model or several concatenated along rows.
struct NdslAlias {
  std::string name;  // "blocks[0].attention.qkv_weight"
  std::vector<std::string> tensors;
};

struct CompiledNdsl {
  ndsl::ModelFile file;
  std::vector<BlockSpec> layers;  // with distinct_layers, only compiled ones
  specs::Spec spec;
  std::vector<NdslTensor> tensors;
  std::map<std::string, size_t> by_name;  // indices into tensors
  std::vector<NdslAlias> aliases;
  std::map<std::string, int64_t> sizes;  // "vocab_size", "hidden_size", "num_layers", "max_position_embeddings", …
  NdslLevel settings;                    // effective settings of the model, by canonical name
  std::set<std::string> set;             // names of settings given by the user
  document::Node hf_config;              // configuration of the folder; null: none
  bool tied = false;                     // the head uses the embedding table
  uint64_t parameters() const;
  const NdslTensor* find(const std::string& name) const;
};

struct NdslCompileOptions {
  std::map<std::string, std::string> set;  // settings that override all others
  const document::Document* hf = nullptr;  // Hugging Face configuration, which overrides that of the file
  // Compile only the first of identical layers, which is enough to find every error of a file.
  bool distinct_layers = false;
};

// Compiles a model. Throws SourceErrors with all errors of its files, and ErrorKind::Usage for an unknown setting in
// `set`.
CompiledNdsl compile_ndsl(const ndsl::ModelFile& file, const NdslCompileOptions& options = {});
// Same, but adds errors to `faults`. If there are errors, the result is only useful for finding further ones.
CompiledNdsl compile_ndsl(const ndsl::ModelFile& file, const NdslCompileOptions& options, NdslFaults& faults);

}  // namespace harmonics::engine
