// Models of `.ndsl` files, opened by path or built-in name, with the weights of a folder or initial values.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/ndsl_compile.hpp"

namespace harmonics::engine {

struct NdslOptions {
  std::map<std::string, std::string> set;  // settings that override the file's: {"num_layers", "2"}
  // A Hugging Face folder, whose config.json overrides the file's settings, or a file (read_ndsl_weights()); "":
  // initial values.
  std::string weights;
  bool distinct_layers = false;  // see NdslCompileOptions; for checks
  uint64_t seed = 0;             // seed of initial values
  bool trainable = false;  // true: parameters are f32 with Role::weight; false: those of a folder are mapped and frozen
  std::optional<DType> weight_type;  // type of matrices that are not trained
  DType cache = DType::F32;
  int64_t length = 0;  // maximum length of sequences in tokens; 0: max_position_embeddings
  std::vector<AdapterFile> adapters = {};
  bool plan_only = false;                 // without weights: parameters have addresses, but no memory and no values
  std::optional<LoraSettings> lora = {};  // adapter to train, in addition to `adapters`; the rest is frozen
};

struct NdslModel {
  Model model;
  std::shared_ptr<const CompiledNdsl> compiled;
  std::string weights;  // folder that was read; "": none
};

// Returns whether this is the path of a `.ndsl` file, or the name of a built-in model that is not also an existing
// path.
bool is_ndsl(const std::string& path_or_name);
// Returns the names of built-in models, sorted.
std::vector<std::string> builtin_ndsl_models();
std::string description_of_ndsl(const std::string& name);
// Returns the text of a built-in model, or null.
const char* builtin_ndsl(const std::string& name);

// Parses settings such as "num_layers=2, hidden_size=64". Returns nothing for malformed text.
std::optional<std::map<std::string, std::string>> settings_in(const std::string& text);

ndsl::ModelFile read_ndsl(const std::string& path_or_name);
// Reads and compiles a model with the configuration of options.weights. Throws SourceErrors with all errors of all
// files.
std::shared_ptr<const CompiledNdsl> compile_ndsl_model(const std::string& path_or_name,
                                                       const NdslOptions& options = {});
// Opens a model. Entries and inputs are those of model_of() (architectures.hpp).
NdslModel open_ndsl(const std::string& path_or_name, const NdslOptions& options = {});

// Checks everything in a file, including hf_mapping, with these settings and without weights. Throws the errors of
// compile_ndsl_model().
void check_ndsl_file(const std::string& path_or_name, const std::map<std::string, std::string>& set = {});
// Checks the model by tracing it for one token. Throws the errors of its steps.
void check_ndsl(const CompiledNdsl& compiled);

// Return the tensors of model.safetensors.index.json with their files, and these files. Throw ErrorKind::Weights for
// file names outside of the folder.
std::map<std::string, std::string> tensors_of_index(const std::string& path);
std::vector<std::string> shards_of_index(const std::string& path);
struct NdslWeights {
  std::map<std::string, HTensor> tensors;  // by the model's names, with separate experts; views where possible
  std::vector<std::shared_ptr<const MappedFile>> files;
};
// Reads the weights of a model: a Hugging Face folder, or a file that read_weights() reads, whose tensors are named as
// in hf_mapping, as in the model, or as in the model behind the prefix of a flow. Throws ErrorKind::Weights, with all
// names, for missing tensors.
NdslWeights read_ndsl_weights(const CompiledNdsl& compiled, const std::string& weights);
// Returns the contents of config.json for the model.
std::string folder_configuration(const CompiledNdsl& compiled);

// Returns the metadata of a folder or file: tokenizer, chat template and end-of-text ids; only the files if no importer
// supports its architecture. `whole`: include the tokenizer's metadata, as in GGUF files.
ImportedModel imported_beside_ndsl(const std::string& folder, Registry& registry, bool whole = false);

}  // namespace harmonics::engine
