// A `.ndsl` model compiled: the operations of each layer's block, and a spec of the whole model that the engine applies
// to weights as it applies those of JSON.
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

// What one layer computes, in the names of its operations ("LN1", "QKV", …).
struct BlockSpec {
  std::string variant;  // dense, parallel, moe
  std::vector<std::string> forward_ops;
  bool use_qk_norm = false;
  bool ln2_on_residual_att = false;  // the second norm reads the sum of the residual stream and the attention
  bool operator==(const BlockSpec&) const = default;
};

// A tensor that the model needs.
struct NdslTensor {
  std::string name;  // "blk.0.attn_q.weight", as in GGUF
  Shape shape;
  hx_init init{};       // of a model without weights
  int64_t experts = 0;  // above 0: shape[0]; a parameter for each of them
  int64_t heads = 0;    // rows are those of so many heads; 0: they are not
  ndsl::Place place;    // of the operation
};

// What hf_mapping calls a tensor: one or several tensors of the model, one below the other.
struct NdslAlias {
  std::string name;  // "blocks[0].attention.qkv_weight"
  std::vector<std::string> tensors;
};

struct CompiledNdsl {
  ndsl::ModelFile file;
  std::vector<BlockSpec> layers;  // with distinct_layers, of the compiled ones
  specs::Spec spec;
  std::vector<NdslTensor> tensors;
  std::map<std::string, size_t> by_name;  // of tensors
  std::vector<NdslAlias> aliases;
  std::map<std::string, int64_t> sizes;  // "vocab_size", "hidden_size", "num_layers", "max_position_embeddings", …
  NdslLevel settings;                    // those of the model that count, by their own names
  std::set<std::string> set;             // the settings that the user gave
  document::Node hf_config;              // the configuration of the folder; null: there is none
  bool tied = false;                     // scores use the table of the embedding
  uint64_t parameters() const;
  const NdslTensor* find(const std::string& name) const;
};

struct NdslCompileOptions {
  std::map<std::string, std::string> set;  // settings above all others
  const document::Document* hf = nullptr;  // a configuration of Hugging Face, above that of the file
  // Of layers that are described alike the first one only: enough to find every error of a file.
  bool distinct_layers = false;
};

// Throws SourceErrors with all errors of its files; ErrorKind::Usage for an unknown setting of `set`.
CompiledNdsl compile_ndsl(const ndsl::ModelFile& file, const NdslCompileOptions& options = {});
// The same, but adds errors to those of reading the files. With errors, the result only serves to find more of them.
CompiledNdsl compile_ndsl(const ndsl::ModelFile& file, const NdslCompileOptions& options, NdslFaults& faults);

}  // namespace harmonics::engine
