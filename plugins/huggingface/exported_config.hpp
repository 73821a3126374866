// config.json of a model that is written.
#pragma once

#include <string>
#include <vector>

#include "config.hpp"

namespace huggingface {

// The text of config.json. `dtype`: torch's name of the weights' type. Throws ErrorKind::Weights for metadata that
// config.json cannot be written with.
std::string config_text(const harmonics::MetadataMap& metadata, const Architecture& architecture, bool tied,
                        const std::map<std::string, std::vector<float>>& rope_factors, const std::string& dtype);

// A JSON value in indented lines.
std::string indented(const json::value& value);

}  // namespace huggingface
