// Reads config.json, the settings of a model, as GGUF metadata.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/importer.hpp>

#include "mapping.hpp"

namespace huggingface {

// Tensors in GGUF; config.json has them as lists, or as the rule that produces them.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
inline constexpr const char* kShortFactors = "rope_factors_short.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";

inline constexpr size_t kLongestConfig = 1 << 20;
inline constexpr const char* kClass = "huggingface.architecture";    // metadata: the model's class in transformers
inline constexpr const char* kScaling = "huggingface.rope_scaling";  // metadata: its JSON, since GGUF has only factors

struct Config {
  const Architecture* architecture = nullptr;
  harmonics::MetadataMap metadata;  // except the tokenizer's
  bool tied = false;
  std::map<std::string, bool> switches;                    // settings of the architecture's `switches`
  std::map<std::string, std::vector<float>> rope_factors;  // by tensor: rope_freqs.weight, or those of longrope

  int64_t count(const char* key, int64_t otherwise) const;
  bool has(const TensorRow& row) const { return row.when.empty() || switches.at(row.when); }
};

// Metadata of a model without spec: its config.json, and the text of the .ndsl file that describes it.
inline constexpr const char* kConfiguration = "huggingface.config";
inline constexpr const char* kDescription = "huggingface.model_dsl";
inline constexpr const char* kNoTokenizer = "huggingface.no_tokenizer";  // why the tokenizer cannot be stored in GGUF

// A model without spec: described by `file` in its folder, or by no file ("").
struct OtherModel {
  std::string file, name;  // `name`: its class; "": config.json names none
  int64_t vocabulary = 0;
};
// Returns none if a spec describes the model, or if config.json lacks the information.
std::optional<OtherModel> other_model(std::string_view text, const std::string& path);

// Throws ErrorKind::Weights for an architecture without spec, and for missing or unsupported settings.
Config read_config(std::string_view text, const std::string& path);

// Reads the scaling of rotary positions into metadata, or into factors.
void read_rope(const Node& config, Config& to);
// Returns the value of rope_scaling; null: none. `factors`: as in Config.
json::value rope_scaling(const harmonics::MetadataMap& metadata, const Architecture& architecture,
                         const std::map<std::string, std::vector<float>>& factors);

// Rounds to 32 bits as GGUF does, so that a folder and the GGUF file made from it compute the same.
inline double in_32_bits(double value) { return static_cast<double>(static_cast<float>(value)); }

// Returns a number from the metadata, or `otherwise`.
double number_of(const harmonics::MetadataMap& metadata, const std::string& key, double otherwise);
// Returns the only value of a list that repeats it for each block, and other values as they are.
harmonics::MetadataValue without_copies(const harmonics::MetadataValue& value);

}  // namespace huggingface
