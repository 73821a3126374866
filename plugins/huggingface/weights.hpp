// The tensors of a folder: one safetensors file, or several with an index, under the names of GGUF.
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
};

// Weights by their names in the folder.
using StoredWeights = std::map<std::string, StoredWeight>;

// Throws ErrorKind::NoInput if a file is missing, ErrorKind::Weights for malformed files and tensors that the index
// places elsewhere.
StoredWeights read_weights(const harmonics::ImportSource& source);
// The names in the index; empty if there is none. Reads no weights.
std::vector<std::string> indexed_names(const harmonics::ImportSource& source);

// A tensor of GGUF with what it is made of.
struct MappedWeight {
  const TensorRow* row = nullptr;
  std::map<int64_t, std::string> parts;  // names in the folder, by expert; without experts one, under 0
};

// By the names of GGUF. Throws ErrorKind::Weights with the names of all tensors that are missing, with those of GGUF,
// and of all that the architecture does not have.
std::map<std::string, MappedWeight> map_weights(const std::vector<std::string>& names, const Config& config,
                                                const std::string& path);

// Adds the tensors to the description. `whole`: exactly as GGUF has them; otherwise rows of queries and keys stay in
// their order, which the metadata "ARCHITECTURE.rope.pairing" says, and experts are tensors of their own.
void add_weights(const StoredWeights& weights, const Config& config, const harmonics::ImportSource& source, bool whole,
                 harmonics::ModelDescription& model);

// Adds the tensors by their own names, as they lie.
void add_weights_as_they_lie(const StoredWeights& weights, harmonics::ModelDescription& model);

// Rows of a matrix of so many heads: those of a head's first and second half alternate, or, backwards, again follow
// each other.
void interleave_rows(const char* from, char* to, uint64_t bytes, uint64_t rows, uint64_t heads, bool backwards);

}  // namespace huggingface
