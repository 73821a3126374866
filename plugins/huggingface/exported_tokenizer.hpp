// Writes a tokenizer's files from GGUF metadata.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <harmonics/importer.hpp>

namespace huggingface {

// Returns names and texts of tokenizer.json, tokenizer_config.json and generation_config.json; none if the metadata has
// no tokenizer. Throws ErrorKind::Weights for an unknown kind of tokenizer.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const harmonics::MetadataMap& metadata);

}  // namespace huggingface
