// config.json: the settings of a model, as metadata of GGUF.
#pragma once

#include <string>
#include <vector>

#include <harmonics/importer.hpp>

#include "mapping.hpp"

namespace huggingface {

inline constexpr size_t kLongestConfig = 1 << 20;
inline constexpr const char* kClass = "huggingface.architecture";    // metadata: the class of transformers
inline constexpr const char* kScaling = "huggingface.rope_scaling";  // metadata: its JSON, where GGUF has only factors

struct Config {
  const Architecture* architecture = nullptr;
  harmonics::MetadataMap metadata;  // without what the tokenizer says
  bool tied = false;
  std::vector<float> rope_factors;  // of rope_freqs.weight; empty: there is none

  int64_t count(const char* key, int64_t otherwise) const;
};

// Throws ErrorKind::Weights for an architecture that has no spec, for settings that are missing or that no spec
// implements.
Config read_config(std::string_view text, const std::string& path);

// The scaling of rotary positions: metadata, or factors.
void read_rope(const Node& config, Config& to);
// The value of rope_scaling; null: none. `factors`: of rope_freqs.weight, empty if there is none.
json::value rope_scaling(const harmonics::MetadataMap& metadata, const Architecture& architecture,
                         const std::vector<float>& factors);

// A number of the metadata.
double number_of(const harmonics::MetadataMap& metadata, const std::string& key, double otherwise);

}  // namespace huggingface
