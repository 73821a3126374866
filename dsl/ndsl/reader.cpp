#include "dsl/ndsl/reader.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::ndsl {

using document::Entry;
using document::Fields;
using document::Kind;
using document::Node;

namespace {

constexpr int64_t kMostLayers = 100'000;
constexpr int kDeepestSource = 8;
constexpr size_t kMostOperations = 1000;  // of one block

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// Returns whether a key of the map looks like a misspelt `name`.
bool stands_for(const Node& map, const std::string& name) {
  return std::any_of(map.entries.begin(), map.entries.end(),
                     [&](const Entry& entry) { return entry.key != name && !meant_by(entry.key, {name}).empty(); });
}

}  // namespace

void FileReader::expect_plain(const std::string& name, Span where) {
  if (is_plain_name(name)) return;
  problems_.add(where, fmt::format("{} cannot be a name here", shown_name(name)),
                "a name has at most 64 letters, digits, _ and -");
}

std::vector<Named> FileReader::names(Fields& fields, const char* key) {
  std::vector<Named> all;
  const Node* node = fields.find(key);
  if (!node) return all;
  if (node->kind == Kind::scalar) return {named(*node)};
  if (node->kind != Kind::list) problems_.expected(*node, fmt::format("'{}'", key), "a list of names");
  for (const Node& item : node->items) {
    if (item.kind == Kind::scalar && !item.text.empty())
      all.push_back(named(item));
    else
      problems_.expected(item, fmt::format("an item of '{}'", key), "a name");
  }
  return all;
}

std::optional<Named> FileReader::name(Fields& fields, const char* key) {
  const Node* node = fields.find(key);
  if (!node || !fields.text(key)) return {};
  return named(*node);
}

FilePart FileReader::read() {
  ModelFile& model = part_.model;
  model.path = document_.source->name();
  model.name.place = place({1, 1, 1});
  if (document_.root.kind == Kind::null) {
    problems_.add({}, fmt::format("'{}' is empty", model.path),
                  "'harmonics list models' shows models to begin with: extends: NAME");
    for (const char* all : {"extends", "import"}) problems_.doubt(all);
    part_.errors = problems_.take();
    part_.doubted = problems_.doubted();
    return std::move(part_);
  }
  Fields top(document_.root, problems_, "the file");
  if (document_.root.kind != Kind::map)
    for (const char* all : {"extends", "import"}) problems_.doubt(all);
  if (document_.root.kind == Kind::map) top.need("name");
  if (const auto found = name(top, "name")) model.name = *found;
  if (const auto type = top.text("type")) {
    model.type = *type;
    if (*type != "model" && *type != "neuron") {
      problems_.expected(*top.find("type"), "'type'", "model or neuron");
      problems_.doubt("type");
      model.type = "model";
    }
  }
  part_.extends = name(top, "extends");
  const bool extends = part_.extends || stands_for(document_.root, "extends");
  part_.imports = names(top, "import");
  model.description = top.text("description").value_or("");
  if (model.type == "neuron") {
    if (const Node* node = top.need("block"); node && !model.name.text.empty())
      model.neurons[model.name.text] = block(*node, "the block");
  } else {
    if (const Node* node = extends ? top.find("architecture") : top.need("architecture")) architecture(*node);
    if (const Node* node = extends ? top.find("config") : top.need("config")) model.config = settings(*node, "config");
    if (const auto found = top.text("hf_architecture")) model.hf_architecture = *found;
    if (const auto found = top.text("hf_model_type")) model.hf_model_type = *found;
    if (const auto found = top.text("hf_prefix")) model.hf_prefix = *found;
    if (const Node* node = top.find("hf_mapping")) mapping(*node);
    if (const Node* node = top.find("hf_defaults")) model.hf_defaults = settings(*node, "hf_defaults", true);
    if (const auto ignored = top.texts("hf_ignored")) model.hf_ignored = *ignored;
  }
  if (const Node* node = top.find("neurons"))
    for (auto& [name, steps] : blocks(*node, "neurons")) model.neurons[name] = std::move(steps);
  top.finish();
  part_.errors = problems_.take();
  part_.doubted = problems_.doubted();
  return std::move(part_);
}

void FileReader::architecture(const Node& node) {
  Fields fields(node, problems_, "architecture");
  ModelFile& model = part_.model;
  if (const auto variant = name(fields, "variant")) model.variant = *variant;
  if (const Node* found = part_.extends ? fields.find("block") : fields.need("block")) {
    model.block = block(*found, "the block");
    part_.has_block = true;
  }
  if (const Node* found = fields.find("blocks")) model.blocks = blocks(*found, "blocks");
  if (const Node* found = fields.find("layers")) layers(*found);
  const auto part = [&](const char* key, Settings& to, bool& given) {
    const Node* found = fields.find(key);
    if (!found) return;
    given = true;
    to = settings(*found, key);
  };
  part("embedding", model.embedding, part_.has_embedding);
  part("head", model.head, part_.has_head);
  if (const Node* found = fields.find("final_norm")) {
    part_.has_final_norm = true;
    model.has_final_norm = document::truth_of(*found).value_or(true);
    if (model.has_final_norm) model.final_norm = settings(*found, "final_norm");
  }
  fields.finish();
}

Settings FileReader::settings(const Node& node, const std::string& what, bool with_nulls) {
  Settings all;
  if (node.kind != Kind::map) {
    problems_.expected(node, what, "a map of keys and values");
    problems_.doubt(what);
  }
  for (const Entry& entry : node.entries)
    if (with_nulls || entry.value.kind != Kind::null) all[entry.key] = {entry.value, place(entry.place)};
  return all;
}

std::map<std::string, Block> FileReader::blocks(const Node& node, const std::string& what) {
  std::map<std::string, Block> all;
  if (node.kind != Kind::map) {
    problems_.expected(node, what, "a map of names and lists of operations");
    problems_.doubt(what);
  }
  for (const Entry& entry : node.entries) all[entry.key] = block(entry.value, "'" + entry.key + "'");
  return all;
}

Block FileReader::block(const Node& node, const std::string& what) {
  Block all;
  if (node.kind != Kind::list || node.items.empty()) {
    problems_.expected(node, what, "a list of operations");
    problems_.doubt("block");
    return all;
  }
  if (node.items.size() > kMostOperations) {
    problems_.add(node.span,
                  fmt::format("{} has {} operations; the limit is {}", what, node.items.size(), kMostOperations));
    problems_.doubt("block");
    return all;
  }
  for (const Node& item : node.items) {
    if (auto one = operation(item))
      all.push_back(std::move(*one));
    else
      problems_.doubt("operations");
  }
  return all;
}

std::optional<Operation> FileReader::operation(const Node& node) {
  Operation one;
  one.place = place(node.span);
  if (node.kind == Kind::scalar) {  // "- ResidualAdd"
    one.op = named(node);
    return one;
  }
  Fields fields(node, problems_, "an operation");
  fields.need("op");
  const auto op = name(fields, "op");
  if (op) one.op = *op, one.place = op->place;
  if (const auto own = name(fields, "name")) {
    one.name = own->text;
    expect_plain(own->text, own->place.span);
  }
  if (const Node* config = fields.find("config")) one.config = settings(*config, "config");
  one.expands_to = names(fields, "expands_to");
  one.fused_with_next = name(fields, "fused_with_next");
  one.fused_with_residual = fields.truth("fused_with_residual").value_or(false);
  one.reads_from = name(fields, "reads_from");
  one.branch = name(fields, "branch");
  one.inputs = names(fields, "inputs");
  one.output = name(fields, "output");
  if (const Node* found = fields.find("weights")) weights(*found, one);
  fields.finish();
  if (!op) return {};
  return one;
}

void FileReader::weights(const Node& node, Operation& to) {
  if (node.kind != Kind::map) problems_.expected(node, "'weights'", "a map of names and lists of dimensions");
  for (const Entry& entry : node.entries) {
    std::vector<std::string> dims;
    expect_plain(entry.key, entry.place);
    if (entry.value.kind == Kind::scalar) dims.push_back(entry.value.text);
    for (const Node& dim : entry.value.items) {
      if (dim.kind == Kind::scalar)
        dims.push_back(dim.text);
      else
        problems_.expected(dim, "a dimension", "a number or an expression");
    }
    if (dims.empty() || dims.size() > 8) problems_.expected(entry.value, "'" + entry.key + "'", "a list of dimensions");
    to.weights.emplace_back(entry.key, std::move(dims));
  }
}

void FileReader::layers(const Node& node) {
  part_.has_layers = true;
  if (node.kind == Kind::map) return layer_rule(node);
  if (node.kind != Kind::list) problems_.expected(node, "'layers'", "a list of rules");
  for (const Node& item : node.items) layer_rule(item);
}

void FileReader::layer_rule(const Node& node) {
  Fields fields(node, problems_, "a rule of layers");
  LayerRule rule;
  rule.place = place(node.span);
  if (const Node* at = fields.find("at")) {
    if (at->kind == Kind::list) {
      for (const Node& item : at->items)
        if (const auto one = range(item)) rule.at.push_back(*one);
    } else if (const auto one = range(*at)) {
      rule.at.push_back(*one);
    }
  }
  rule.every = fields.whole("every", 1, kMostLayers).value_or(0);
  rule.from = fields.whole("from", 0, kMostLayers).value_or(0);
  Variation own;
  if (const auto block = fields.text("block")) own.block = *block;
  if (const Node* config = fields.find("config")) own.config = settings(*config, "config");
  if (const Node* pattern = fields.find("pattern")) {
    if (pattern->kind != Kind::list || pattern->items.empty())
      problems_.expected(*pattern, "'pattern'", "a list of blocks or settings");
    for (const Node& item : pattern->items) rule.pattern.push_back(variation(item));
    if (!rule.at.empty() || rule.every > 0 || !own.block.empty() || !own.config.empty())
      problems_.add(node.span, "a rule with 'pattern' is for all layers and has nothing else");
  } else {
    if (node.kind == Kind::map && !node.find("at") && !node.find("every"))
      problems_.add(node.span, "a rule of layers needs 'at', 'every' or 'pattern'");
    rule.pattern.push_back(std::move(own));
  }
  fields.finish();
  part_.model.layers.push_back(std::move(rule));
}

Variation FileReader::variation(const Node& node) {
  Variation one;
  if (node.kind == Kind::scalar) {
    one.block = node.text;
    return one;
  }
  Fields fields(node, problems_, "an item of 'pattern'");
  if (const auto block = fields.text("block")) one.block = *block;
  if (const Node* config = fields.find("config")) one.config = settings(*config, "config");
  fields.finish();
  return one;
}

// Parses "3" or "3..7".
std::optional<std::pair<int64_t, int64_t>> FileReader::range(const Node& node) {
  if (node.kind == Kind::scalar) {
    const size_t dots = node.text.find("..");
    const auto number = [](std::string text) {
      Node part;
      part.kind = Kind::scalar;
      part.text = std::move(text);
      return document::whole_of(part);
    };
    const auto first = number(node.text.substr(0, dots));
    const auto last = dots == std::string::npos ? first : number(node.text.substr(dots + 2));
    if (first && last && *first >= 0 && *first <= *last && *last < kMostLayers) return std::pair(*first, *last);
  }
  problems_.expected(node, "a layer", "a number from 0 or a range such as 3..7");
  return {};
}

void FileReader::mapping(const Node& node) {
  if (node.kind != Kind::map) problems_.expected(node, "'hf_mapping'", "a map of tensors");
  for (const Entry& entry : node.entries) {
    if (entry.value.kind == Kind::null) continue;
    const size_t known = problems_.count();
    if (const auto from = source(entry.value, 0); from && problems_.count() == known)
      part_.model.hf_mapping.push_back({{entry.key, place(entry.place)}, *from});
  }
}

std::optional<Source> FileReader::source(const Node& node, int depth) {
  Source from;
  from.place = place(node.span);
  if (depth > kDeepestSource) {
    problems_.add(node.span, "the operations on a tensor are nested too deep");
    return {};
  }
  if (node.kind == Kind::scalar && !node.text.empty()) {
    from.name = node.text;
    return from;
  }
  if (node.kind != Kind::map) {
    problems_.expected(node, "the origin of a tensor", "a name, or concat, split, transpose, tie or stack_experts");
    return {};
  }
  Fields fields(node, problems_, "the origin of a tensor");
  constexpr std::pair<const char*, Source::Verb> kVerbs[] = {
      {"direct", Source::Verb::direct}, {"concat", Source::Verb::concat},
      {"split", Source::Verb::split},   {"transpose", Source::Verb::transpose},
      {"tie", Source::Verb::tie},       {"stack_experts", Source::Verb::stack_experts}};
  const Node* operand = nullptr;
  int verbs = 0;
  for (const auto& [key, verb] : kVerbs) {
    const Node* found = fields.find(key);
    if (!found) continue;
    operand = found, from.verb = verb;
    ++verbs;
  }
  if (from.verb == Source::Verb::split) {
    from.of = fields.whole("of", 1, 1 << 20).value_or(1);
    from.part = fields.whole("part", 0, from.of - 1).value_or(0);
    from.by_head = fields.truth("by_head").value_or(false);
  }
  fields.finish();
  if (verbs != 1) {
    problems_.add(node.span, fmt::format("the origin of a tensor has {} operations, but needs exactly one", verbs),
                  "operations: direct, concat, split, transpose, tie, stack_experts");
    return {};
  }
  const bool named_one =
      from.verb == Source::Verb::direct || from.verb == Source::Verb::tie || from.verb == Source::Verb::stack_experts;
  if (named_one) {
    from.name = operand->text;
    if (operand->kind != Kind::scalar || from.name.empty())
      problems_.expected(*operand, "the name of a tensor", "a string");
    else if (from.verb == Source::Verb::stack_experts && from.name.find("{e}") == std::string::npos)
      problems_.expected(*operand, "the name of the experts' tensors", "a string with {e}");
    return from;
  }
  if (from.verb != Source::Verb::concat) {
    if (const auto part = source(*operand, depth + 1)) from.parts.push_back(*part);
    return from;
  }
  if (operand->kind != Kind::list || operand->items.empty())
    problems_.expected(*operand, "'concat'", "a list of tensors");
  for (const Node& item : operand->items)
    if (const auto part = source(item, depth + 1)) from.parts.push_back(*part);
  return from;
}

}  // namespace harmonics::engine::ndsl
