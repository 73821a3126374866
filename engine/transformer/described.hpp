// Models that a `.ndsl` text describes, as imported models: their tensors have the names of GGUF, and the text is one
// of the metadata. They are exported, quantised, adapted and trained as models of known architectures are.
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
inline constexpr const char* kNoTokenizer = "huggingface.no_tokenizer";  // metadata: why GGUF cannot hold it
inline constexpr const char* kDescriptionFile = "model.ndsl";  // of a folder, which its config.json names as model_dsl

struct DescribedOptions {
  SpecOverrides set = {};  // settings above those of the file
  bool whole = false;      // as GGUF files hold models: with the tokenizer's metadata, experts stacked
  bool weights = true;     // false: of a folder the settings alone
  uint64_t seed = 0;       // of initial values
};

// import_model(), and of a folder whose config.json names a `.ndsl` file as model_dsl, or whose class has a built-in
// one and no spec, the tensors that the description needs. Throws as import_model() and import_mapped() throw;
// ErrorKind::Weights for a class that nothing describes.
ImportedModel import_language_model(const std::string& path, Registry& registry, const DescribedOptions& options = {});

// A `.ndsl` file or a built-in model with the weights of a folder, or of a file of safetensors by the names of
// hf_mapping; "": with initial values.
ImportedModel import_described(const std::string& path_or_name, const std::string& weights, Registry& registry,
                               const DescribedOptions& options = {});

// The same with these tensors, by the model's names, experts one by one.
ImportedModel described_model(const CompiledNdsl& compiled, const std::string& path,
                              std::map<std::string, HTensor> tensors, const DescribedOptions& options);

// The compiled description; null if the model has none.
std::shared_ptr<const CompiledNdsl> description_of(const ImportedModel& imported, const SpecOverrides& set = {});

// The description with all settings of a compiled model in it, so that it needs no other file.
ndsl::ModelFile whole_description(const CompiledNdsl& compiled);

// Copies a tokenizer's files into a folder: `from` is a folder, or a tokenizer.json under any name. A folder without
// them gives none.
void copy_tokenizer_files(const std::string& from, const std::string& folder);

struct NdslFolder {
  std::string path;
  std::string tokenizer;                 // a folder or a tokenizer.json whose files are copied; "": none
  std::optional<int32_t> begin, end;     // ids of the tokenizer, where no configuration of Hugging Face names them
  uint64_t shard_bytes = 5'000'000'000;  // of one file of weights, unless a single tensor is larger
};
// Writes a folder of Hugging Face: weights by the names of hf_mapping (without one, by the model's own) in one file or
// in several with an index, the tokenizer's files, the description, and config.json last.
// An error leaves the folder unchanged, except while files are renamed: then config.json is missing. Removes weights
// that the folder held under other names.
// `tensors`: by the model's names, experts one by one or stacked. Block types are written as f32. `written` is called
// before the files are exchanged, and may throw. Returns the number of bytes.
uint64_t write_ndsl_folder(const CompiledNdsl& compiled, const std::map<std::string, HTensor>& tensors,
                           const NdslFolder& to, const std::function<void()>& written = {});

}  // namespace harmonics::engine
