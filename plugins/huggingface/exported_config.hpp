// Writes config.json.
#pragma once

#include <string>
#include <vector>

#include "config.hpp"

namespace huggingface {

// What the weights of a folder say about its config.json.
struct ExportedWeights {
  bool tied = false;
  bool blocks = false;                                     // some are of the type mxfp4, divided into codes and scales
  std::map<std::string, bool> switches;                    // settings by which tensors exist
  std::map<std::string, std::vector<float>> rope_factors;  // as in Config
  std::string dtype;                                       // in torch's notation
};

// Returns the text of config.json. Throws ErrorKind::Weights for metadata that config.json cannot express.
std::string config_text(const harmonics::MetadataMap& metadata, const Architecture& architecture,
                        const ExportedWeights& weights);

// Serializes a JSON value with indentation.
std::string indented(const json::value& value);

}  // namespace huggingface
