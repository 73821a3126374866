// Models described by a `.ndsl` text, as imported models: tensors have GGUF names, and the text is part of the
// metadata. They can be exported, quantised, adapted and trained like models of known architectures.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/model/imported.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "engine/transformer/variables.hpp"

namespace harmonics::engine {

inline constexpr const char* kDescribedBy = "harmonics.ndsl";            // metadata: the text
inline constexpr const char* kDescribedArchitecture = "ndsl";            // general.architecture
inline constexpr const char* kNoTokenizer = "huggingface.no_tokenizer";  // metadata: why GGUF cannot represent it
inline constexpr const char* kDescriptionFile = "model.ndsl";  // in a folder; named as model_dsl in config.json

struct DescribedOptions {
  SpecOverrides set = {};  // settings that override those of the file
  bool whole = false;      // as in GGUF files: with the tokenizer's metadata and stacked experts
  bool weights = true;     // false: read only the settings of a folder
  uint64_t seed = 0;       // seed of initial values
};

// Like import_model(). For a folder whose config.json names a `.ndsl` file as model_dsl, or whose class has a built-in
// `.ndsl` model but no spec, returns the tensors that the description requires. Throws the errors of import_model() and
// import_mapped(), and ErrorKind::Weights for a class without description.
ImportedModel import_language_model(const std::string& path, Registry& registry, const DescribedOptions& options = {});

// Imports a `.ndsl` file or built-in model with these weights (read_ndsl_weights()), or with initial values if
// `weights` is "".
ImportedModel import_described(const std::string& path_or_name, const std::string& weights, Registry& registry,
                               const DescribedOptions& options = {});

// Returns the compiled description, or null if the model has none.
std::shared_ptr<const CompiledNdsl> description_of(const ImportedModel& imported, const SpecOverrides& set = {});

// Returns the description including all settings of a compiled model, so that it depends on no other file.
ndsl::ModelFile whole_description(const CompiledNdsl& compiled);

// Copies a tokenizer's files into a folder. `from`: a folder, which need not have such files, or a tokenizer.json under
// any name.
void copy_tokenizer_files(const std::string& from, const std::string& folder);

struct NdslFolder {
  std::string path;
  std::string tokenizer;                 // folder or tokenizer.json to copy files from; "": none
  std::optional<int32_t> begin, end;     // bos and eos ids, used if there is no Hugging Face configuration
  uint64_t shard_bytes = 5'000'000'000;  // maximum size of a weight file, unless a single tensor is larger
};
// Writes a Hugging Face folder: weights named as in hf_mapping (without one, as in the model) in one file, or in
// several with an index; the tokenizer's files; the description; and config.json last. Removes obsolete weight files of
// the folder. An error leaves the folder unchanged, except while files are renamed, when config.json is missing.
// `tensors`: by the model's names, with separate or stacked experts. Block types are written as f32. `written` is
// called before files are replaced, and may throw. Returns the number of bytes of weights.
uint64_t write_ndsl_folder(const CompiledNdsl& compiled, const std::map<std::string, HTensor>& tensors,
                           const NdslFolder& to, const std::function<void()>& written = {});

}  // namespace harmonics::engine
