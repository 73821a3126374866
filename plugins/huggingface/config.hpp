// config.json: the settings of a model, as metadata of GGUF.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/importer.hpp>

#include "mapping.hpp"

namespace huggingface {

// Tensors that GGUF has, and config.json as lists or as the rule that gives them.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
inline constexpr const char* kShortFactors = "rope_factors_short.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";

inline constexpr size_t kLongestConfig = 1 << 20;
inline constexpr const char* kClass = "huggingface.architecture";    // metadata: the class of transformers
inline constexpr const char* kScaling = "huggingface.rope_scaling";  // metadata: its JSON, where GGUF has only factors

struct Config {
  const Architecture* architecture = nullptr;
  harmonics::MetadataMap metadata;  // without what the tokenizer says
  bool tied = false;
  std::map<std::string, std::vector<float>> rope_factors;  // by tensor: rope_freqs.weight, or those of longrope

  int64_t count(const char* key, int64_t otherwise) const;
};

// Metadata of a model that no spec describes: its configuration, and the text of the .ndsl file that describes it.
inline constexpr const char* kConfiguration = "huggingface.config";
inline constexpr const char* kDescription = "huggingface.model_dsl";
inline constexpr const char* kNoTokenizer = "huggingface.no_tokenizer";  // why GGUF cannot have its tokenizer

// A model that the file `file` of the folder describes, or, with "", one of a class that has no spec.
struct OtherModel {
  std::string file, name;  // of the class; "": config.json names none
  int64_t vocabulary = 0;
};
// None: a spec describes the model, or config.json says too little to tell.
std::optional<OtherModel> other_model(std::string_view text, const std::string& path);

// Throws ErrorKind::Weights for an architecture that has no spec, for settings that are missing or that no spec
// implements.
Config read_config(std::string_view text, const std::string& path);

// The scaling of rotary positions: metadata, or factors.
void read_rope(const Node& config, Config& to);
// The value of rope_scaling; null: none. `factors`: as in Config.
json::value rope_scaling(const harmonics::MetadataMap& metadata, const Architecture& architecture,
                         const std::map<std::string, std::vector<float>>& factors);

// As GGUF holds it, in 32 bits: a folder and the file written from it then compute the same.
inline double in_32_bits(double value) { return static_cast<double>(static_cast<float>(value)); }

// A number of the metadata.
double number_of(const harmonics::MetadataMap& metadata, const std::string& key, double otherwise);

}  // namespace huggingface
