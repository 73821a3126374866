// A transformer as its `.ndsl` file says it: plain data with the place of each part. docs/ndsl.md describes the files.
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
  std::string name;  // "" if it has none
  Place place;
  Settings config;
  std::vector<Named> expands_to;
  std::optional<Named> fused_with_next, reads_from, branch, output;
  bool fused_with_residual = false;
  std::vector<Named> inputs;
  std::vector<std::pair<std::string, std::vector<std::string>>> weights;  // of a functional: names and dimensions
};
using Block = std::vector<Operation>;

// What some layers have different: the layers, a block by name, and settings above those of the model.
struct Variation {
  std::string block;  // "": the block of the model
  Settings config;
};
struct LayerRule {
  Place place;
  std::vector<std::pair<int64_t, int64_t>> at;  // ranges, first and last
  int64_t every = 0, from = 0;                  // above 0: layers from, from + every, …
  std::vector<Variation> pattern;               // several: repeated over all layers
};

// Where the elements of a tensor come from in a file of weights.
struct Source {
  enum class Verb { direct, concat, split, transpose, tie, stack_experts };
  Verb verb = Verb::direct;
  std::string name;           // direct, tie, stack_experts
  std::vector<Source> parts;  // concat: several; split, transpose: one
  int64_t part = 0, of = 1;   // split: which of so many equal parts of the rows
  bool by_head = false;       // split: the rows of each head stand together, as in GPT-NeoX
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
  std::string hf_prefix;  // what names of tensors in a folder may lack
  std::vector<Mapping> hf_mapping;
  std::vector<std::string> hf_ignored;  // tensors of the folder that change no result; {i} is a block
};

// Gives the text of a built-in file, or null.
using Library = const char* (*)(const std::string& name);

class Faults;

// Reads a file with what it extends and imports. Such names are of files below its folder, or of the library. Throws
// SourceErrors with all errors of all files, ErrorKind::NoInput if the first one cannot be read.
ModelFile read_model_file(const std::string& path, Library library);
// The same for a text. `folder`: of files that it names; "": it may name those of the library only.
ModelFile parse_model_file(const std::string& name, std::string_view text, const std::string& folder, Library library);
// The same, but adds the errors to the caller's list. Parts with errors are not in the model.
ModelFile read_model_file(const std::string& path, Library library, Faults& faults);
ModelFile parse_model_file(const std::string& name, std::string_view text, const std::string& folder, Library library,
                           Faults& faults);

}  // namespace harmonics::engine::ndsl
