// What a spec says under hf_mapping: how the tensors and settings of an architecture are called in folders of Hugging
// Face and in GGUF, in rows that are used for reading and for writing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"

namespace huggingface {

struct TensorRow {
  std::string name;     // of GGUF, with {i} for the block
  std::string hf;       // with {i}, and {e} for the expert: the matrices that `name` holds one behind the other
  std::string permute;  // the key of the number of heads whose rows GGUF stores with neighbours as rotary pairs
  double add = 0;       // what GGUF's elements have more
  std::string tied;     // what it equals where the embeddings are tied; it is not stored then
};

struct MetadataRow {
  std::string key;     // of GGUF; without the architecture in front
  std::string config;  // of config.json
  Node otherwise;      // a number, "NAME" or "NAME / NAME" of config.json
  bool real = false;
};

struct Architecture {
  std::string name;                                          // general.architecture
  std::vector<std::pair<std::string, std::string>> classes;  // of transformers, with their model_type
  bool tied = false;                                         // where config.json does not say
  std::string prefix;                                        // that names of tensors may have in front
  std::map<std::string, Node> constants;                     // of the metadata
  std::optional<int64_t> window_pattern;                     // of every so many blocks one sees all
  std::vector<MetadataRow> metadata;
  std::vector<std::pair<std::string, Node>> expected;  // what settings may be, where they are given
  std::vector<TensorRow> tensors;
  std::vector<std::string> ignored;  // tensors that change no result

  const MetadataRow* find_row(std::string_view config) const;
  std::string key(const std::string& row_key) const { return row_key[0] == '@' ? row_key : name + "." + row_key; }
};

// Null: unknown.
const Architecture* find_class(std::string_view name);
const Architecture* find_architecture(std::string_view name);
std::string known_classes();
std::string known_architectures();

// Numbers in a name.
struct Place {
  int64_t block = 0, expert = 0;
};
// The place if the name fits the pattern.
std::optional<Place> match(std::string_view pattern, std::string_view name);
std::string filled(std::string_view pattern, const Place& place);
inline bool has_block(std::string_view pattern) { return pattern.find("{i}") != std::string_view::npos; }
inline bool has_expert(std::string_view pattern) { return pattern.find("{e}") != std::string_view::npos; }

}  // namespace huggingface
