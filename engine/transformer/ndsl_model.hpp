// Models of `.ndsl` files: opened by path or built-in name, with weights of a folder or initial ones, and written back.
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
  std::map<std::string, std::string> set;  // settings above the file's: {"num_layers", "2"}
  // A folder of Hugging Face (config.json, which is above the file's settings, and safetensors) or a file of
  // safetensors; "": initial values.
  std::string weights;
  bool distinct_layers = false;  // see NdslCompileOptions; for checks
  uint64_t seed = 0;             // of initial values
  bool trainable = false;  // parameters are f32 and of Role::weight; else those of a folder stay mapped, and frozen
  std::optional<DType> weight_type;  // of matrices that are not trained
  DType cache = DType::F32;
  int64_t length = 0;  // tokens that sequences may have; 0: max_position_embeddings
  std::vector<AdapterFile> adapters = {};
  bool plan_only = false;                 // without weights: parameters have addresses, but no memory and no values
  std::optional<LoraSettings> lora = {};  // an adapter to train, on top of these; the rest is frozen
};

struct NdslModel {
  Model model;
  std::shared_ptr<const CompiledNdsl> compiled;
  std::string weights;  // the folder that was read; "": none
};

// Whether this is the path of a `.ndsl` file, or the name of a built-in model and no path of a file or folder.
bool is_ndsl(const std::string& path_or_name);
// Built-in models by name, sorted.
std::vector<std::string> builtin_ndsl_models();
std::string description_of_ndsl(const std::string& name);
// Their text, or null.
const char* builtin_ndsl(const std::string& name);

// Parses settings such as "num_layers=2, hidden_size=64". Nothing for a text of another form.
std::optional<std::map<std::string, std::string>> settings_in(const std::string& text);

ndsl::ModelFile read_ndsl(const std::string& path_or_name);
// Reads and compiles, with the configuration of options.weights. Throws SourceErrors with all errors of all files.
std::shared_ptr<const CompiledNdsl> compile_ndsl_model(const std::string& path_or_name,
                                                       const NdslOptions& options = {});
// Entries and inputs are those of model_of() (architectures.hpp).
NdslModel open_ndsl(const std::string& path_or_name, const NdslOptions& options = {});

// Everything that a file says, hf_mapping included, without weights. Throws what compile_ndsl_model() throws.
void check_ndsl_file(const std::string& path_or_name);
// Traces the model for one token: throws what the steps throw.
void check_ndsl(const CompiledNdsl& compiled);

// The tensors of model.safetensors.index.json with their files, and those files. Throw ErrorKind::Weights for names
// that leave the folder.
std::map<std::string, std::string> tensors_of_index(const std::string& path);
std::vector<std::string> shards_of_index(const std::string& path);
// The tensors of a folder of Hugging Face, or of one file of safetensors, by their names there.
struct NdslWeights {
  std::map<std::string, HTensor> tensors;  // views
  std::vector<std::shared_ptr<const MappedFile>> files;
};
NdslWeights read_ndsl_weights(const std::string& weights);
// The settings of config.json, as JSON.
std::string folder_configuration(const CompiledNdsl& compiled);

// The folder's metadata for tokenizers, chat templates and the ids that end texts. Of an architecture that no importer
// knows: the files alone. `whole`: with the tokenizer's metadata, as GGUF files have them.
ImportedModel imported_beside_ndsl(const std::string& folder, Registry& registry, bool whole = false);

}  // namespace harmonics::engine
