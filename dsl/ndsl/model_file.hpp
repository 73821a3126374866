// A transformer as described by its `.ndsl` file: plain data with positions. docs/ndsl.md describes the files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/document/document.hpp"

namespace harmonics::engine::ndsl {

// A position in one of the files that make a model.
struct Place {
  std::shared_ptr<const SourceText> source;
  Span span;
  std::string text() const { return source ? source->place(span) : std::string(); }  // "my.ndsl:9:22"
};

// A value of a configuration.
struct Setting {
  document::Node value;
  Place place;
};
using Settings = std::map<std::string, Setting>;

struct Named {
  std::string text;
  Place place;
};

// One step of a block.
struct Operation {
  Named op;
  std::string name;  // "": unnamed
  Place place;
  Settings config;
  std::vector<Named> expands_to;
  std::optional<Named> fused_with_next, reads_from, branch, output;
  bool fused_with_residual = false;
  std::vector<Named> inputs;
  std::vector<std::pair<std::string, std::vector<std::string>>> weights;  // functional: names and dimensions
};
using Block = std::vector<Operation>;

// Differences of some layers: a block by name, and settings that override those of the model.
struct Variation {
  std::string block;  // "": the model's block
  Settings config;
};
struct LayerRule {
  Place place;
  std::vector<std::pair<int64_t, int64_t>> at;  // ranges, first and last
  int64_t every = 0, from = 0;                  // every > 0: layers from, from + every, …
  std::vector<Variation> pattern;               // several: repeated over all layers in turn
};

// The origin of a tensor's elements in a weights file.
struct Source {
  enum class Verb { direct, concat, split, transpose, tie, stack_experts };
  Verb verb = Verb::direct;
  std::string name;           // direct, tie, stack_experts
  std::vector<Source> parts;  // concat: several; split, transpose: one
  int64_t part = 0, of = 1;   // split: index and number of equal parts of the rows
  bool by_head = false;       // split: rows are grouped by head, as in GPT-NeoX
  Place place;
};
struct Mapping {
  Named tensor;  // "blocks[{i}].ln1.weight"
  Source source;
};

struct ModelFile {
  std::string path;
  Named name;
  std::string type = "model", description;
  Named variant;
  Block block;
  std::map<std::string, Block> blocks, neurons;
  std::vector<LayerRule> layers;
  Settings embedding, final_norm, head;  // of architecture
  bool has_final_norm = true;
  Settings config;
  std::string hf_architecture, hf_model_type;
  std::string hf_prefix;  // optional prefix of tensor names in a folder
  std::vector<Mapping> hf_mapping;
  Settings hf_defaults;  // of settings that config.json of a folder lacks, before `config`; null: not given
  std::vector<std::string> hf_ignored;  // tensors of the folder that do not affect results; {i}: block
};

// Returns the text of a built-in file, or null.
using Library = const char* (*)(const std::string& name);

class Faults;

// Reads a file with all files that it extends or imports, from its folder, subfolders or the library. Throws
// SourceErrors with all errors of all files, or ErrorKind::NoInput if the first file cannot be read.
ModelFile read_model_file(const std::string& path, Library library);
// Parses a text likewise. `folder`: where the files that it names are; "": it may name files of the library only.
ModelFile parse_model_file(const std::string& name, std::string_view text, const std::string& folder, Library library);
// Like read_model_file above, but adds the errors to `faults`. Parts with errors are omitted from the model.
ModelFile read_model_file(const std::string& path, Library library, Faults& faults);
ModelFile parse_model_file(const std::string& name, std::string_view text, const std::string& folder, Library library,
                           Faults& faults);

}  // namespace harmonics::engine::ndsl
