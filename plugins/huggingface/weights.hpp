// Reads the tensors of a folder (one safetensors file, or several with an index) under their GGUF names.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/importer.hpp>

#include "config.hpp"

namespace huggingface {

struct StoredWeight {
  harmonics::DType dtype = harmonics::DType::F32;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // in its file
  uint32_t file = 0;
  std::string_view bytes;
  std::string_view scales = {};  // of mxfp4: one byte for the 16 bytes of codes of each block, which are in `bytes`
};

// Weights by name in the folder.
using StoredWeights = std::map<std::string, StoredWeight>;

// Throws ErrorKind::NoInput if a file is missing, ErrorKind::Weights for malformed files and for tensors in another
// file than the index says.
StoredWeights read_weights(const harmonics::ImportSource& source);
// Returns the names in the index; empty: there is none. Reads no weights.
std::vector<std::string> indexed_names(const harmonics::ImportSource& source);

// A GGUF tensor and the folder's tensors that it consists of.
struct MappedWeight {
  const TensorRow* row = nullptr;
  std::map<int64_t, std::string> parts;  // names in the folder by expert; without experts a single one with key 0
};

// Maps GGUF names to tensors of the folder. Throws ErrorKind::Weights that lists all missing tensors by GGUF name, and
// all tensors that the architecture does not have.
std::map<std::string, MappedWeight> map_weights(const std::vector<std::string>& names, const Config& config,
                                                const std::string& path);

// Adds the tensors to the description. `whole`: exactly as in GGUF. Otherwise rows of queries and keys keep their
// order, which is recorded in the metadata "ARCHITECTURE.rope.pairing", and each expert is a tensor.
void add_weights(const StoredWeights& weights, const Config& config, const harmonics::ImportSource& source, bool whole,
                 harmonics::ModelDescription& model);

// Adds the tensors unchanged, under their own names.
void add_weights_as_they_lie(const StoredWeights& weights, harmonics::ModelDescription& model);

}  // namespace huggingface
