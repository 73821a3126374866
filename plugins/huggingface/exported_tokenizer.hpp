// The files of a tokenizer, from the metadata of GGUF.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <harmonics/importer.hpp>

namespace huggingface {

// Names and texts: tokenizer.json, tokenizer_config.json, generation_config.json; none if the metadata have no
// tokenizer. Throws ErrorKind::Weights for a tokenizer of a kind that is not known.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const harmonics::MetadataMap& metadata);

}  // namespace huggingface
