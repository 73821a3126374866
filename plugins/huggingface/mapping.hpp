// A spec's hf_mapping: the names of an architecture's tensors and settings in Hugging Face folders and in GGUF. The
// same rows are used for reading and for writing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"

namespace huggingface {

// The rows of a folder's matrix that are GGUF's matrix; of a bias, the elements.
enum class Half { whole, first, second, even, odd };

struct TensorRow {
  std::string name;         // in GGUF; {i}: block
  std::string hf;           // in the folder; {i}: block, {e}: expert, whose matrices are contiguous in `name`
  std::string permute;      // key of the number of heads, if GGUF stores rotary pairs in adjacent rows
  double add = 0;           // constant that GGUF adds to the elements
  std::string tied;         // the tensor that it equals, and then not stored, if embeddings are tied
  std::string when;         // the setting of config.json that says whether the tensor exists; "": it does
  Half half = Half::whole;  // of each expert's matrix, if the tensor is a stack
  bool transposed = false;  // the folder stores [k, n]; not in blocks of mxfp4
  std::string by_head;      // key of the number of heads, if the folder stores the three parts of each head together

  bool is_stack() const { return name.find("_exps.") != std::string::npos; }  // of all experts
  bool is_bias() const { return name.ends_with(".bias"); }
};

struct MetadataRow {
  std::string key;     // in GGUF, without the architecture's prefix
  std::string config;  // in config.json
  Node otherwise;      // default: a number, "NAME", "NAME / NAME" or "NUMBER * NAME" of config.json, or a truth value
  bool real = false;
  std::vector<std::string> older;  // further names in config.json
  std::string of;                  // the only class that has the setting; "": all

  bool may_be_off() const { return config == "sliding_window" || config.ends_with("logit_softcapping"); }  // by null
};

struct Architecture {
  std::string name;           // general.architecture
  bool with_experts = false;  // of this architecture, the models with experts, unless it has one spec
  std::vector<std::pair<std::string, std::string>> classes;  // in transformers: class and model_type
  Node read;  // false: folders are read as .ndsl models describe them; settings: unless they have these values
  std::vector<std::string> described;     // classes of which a .ndsl model describes what the spec does not implement:
  std::vector<std::string> describable;   // these settings, kinds of layers, and scaled positions
  bool tied = false;                      // default, if config.json has no value
  std::string prefix;                     // optional prefix of tensor names
  std::map<std::string, Node> constants;  // metadata with fixed values
  std::optional<int64_t> window_pattern;  // one of every so many blocks has full attention
  std::map<std::string, bool> switches;   // settings that tensors exist by, with defaults
  std::string rotary = "partial_rotary_factor";  // setting: the rotated part of each head
  double rotary_part = 1;                        // its default
  bool divides_frequencies = false;              // the spec has frequency divisors as a tensor
  bool window_unscaled = false;                  // blocks with a window do not scale their positions
  bool truncates = true;                         // whether yarn rounds the bounds of its ramp
  std::vector<MetadataRow> metadata;
  std::vector<std::pair<std::string, Node>> expected;  // supported values of optional settings
  std::map<std::string, Node> unsaid;                  // values of such settings that config.json lacks
  std::vector<TensorRow> tensors;
  std::vector<std::string> ignored;  // tensors that do not affect results

  bool reads(const Node& config) const;
  bool is_described(std::string_view name) const;
  const MetadataRow* find_row(std::string_view config) const;
  std::string key(const std::string& row_key) const { return row_key[0] == '@' ? row_key : name + "." + row_key; }
};

// Return null if the name is unknown.
const Architecture* find_class(std::string_view name);
const Architecture* find_architecture(std::string_view name, bool has_experts);
std::vector<std::string> known_classes();
std::string known_architectures();

// The numbers in a tensor's name.
struct Place {
  int64_t block = 0, expert = 0;
};
// Returns the numbers if the name matches the pattern.
std::optional<Place> match(std::string_view pattern, std::string_view name);
std::string filled(std::string_view pattern, const Place& place);
inline bool has_block(std::string_view pattern) { return pattern.find("{i}") != std::string_view::npos; }
inline bool has_expert(std::string_view pattern) { return pattern.find("{e}") != std::string_view::npos; }

}  // namespace huggingface
