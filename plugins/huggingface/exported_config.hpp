// Writes config.json.
#pragma once

#include <string>
#include <vector>

#include "config.hpp"

namespace huggingface {

// Returns the text of config.json. `dtype`: the weights' type in torch's notation. Throws ErrorKind::Weights for
// metadata that config.json cannot express.
std::string config_text(const harmonics::MetadataMap& metadata, const Architecture& architecture, bool tied,
                        const std::map<std::string, std::vector<float>>& rope_factors, const std::string& dtype);

// Serializes a JSON value with indentation.
std::string indented(const json::value& value);

}  // namespace huggingface
