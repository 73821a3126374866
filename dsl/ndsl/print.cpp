#include "dsl/ndsl/print.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace harmonics::engine::ndsl {

using document::Kind;
using document::Node;

namespace {

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (code < 0x20 || code == 0x7f)
      out += fmt::format("\\x{:02x}", code);
    else
      out += c;
  }
  return out + "\"";
}

// Returns whether a text needs no quotes: it is a word or a number.
bool stands_alone(const std::string& text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || c == '+';
  };
  return !text.empty() && text[0] != '-' && text[0] != '.' && text != "null" && text != "Null" && text != "NULL" &&
         std::all_of(text.begin(), text.end(), fits);
}

std::string key_text(const std::string& key) { return stands_alone(key) ? key : in_quotes(key); }

std::string value_text(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Kind::null:
      return "null";
    case Kind::scalar:
      if (node.quoted) return in_quotes(node.text);
      return stands_alone(node.text) || document::real_of(node) ? node.text : in_quotes(node.text);
    case Kind::list:
      for (const Node& item : node.items) out += (out.empty() ? "" : ", ") + value_text(item);
      return "[" + out + "]";
    case Kind::map:
      break;
  }
  for (const document::Entry& entry : node.entries)
    out += (out.empty() ? "" : ", ") + key_text(entry.key) + ": " + value_text(entry.value);
  return "{" + out + "}";
}

// Builds "{a: 1, b: 2}" from pairs that are already text.
class Map {
 public:
  void add(const std::string& key, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + key_text(key) + ": " + value;
  }
  void add_text(const std::string& key, const std::string& value) {
    if (!value.empty()) add(key, stands_alone(value) ? value : in_quotes(value));
  }
  bool empty() const { return text_.empty(); }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

std::string settings_text(const Settings& settings) {
  Map map;
  for (const auto& [key, setting] : settings) map.add(key, value_text(setting.value));
  return map.text();
}

std::string names_text(const std::vector<Named>& names) {
  std::string out;
  for (const Named& name : names) out += (out.empty() ? "" : ", ") + key_text(name.text);
  return "[" + out + "]";
}

std::string operation_text(const Operation& one) {
  Map map;
  map.add_text("op", one.op.text);
  map.add_text("name", one.name);
  if (!one.config.empty()) map.add("config", settings_text(one.config));
  if (!one.expands_to.empty()) map.add("expands_to", names_text(one.expands_to));
  if (one.fused_with_next) map.add_text("fused_with_next", one.fused_with_next->text);
  if (one.fused_with_residual) map.add("fused_with_residual", "true");
  if (one.reads_from) map.add_text("reads_from", one.reads_from->text);
  if (one.branch) map.add_text("branch", one.branch->text);
  if (!one.inputs.empty()) map.add("inputs", names_text(one.inputs));
  if (one.output) map.add_text("output", one.output->text);
  if (!one.weights.empty()) {
    Map weights;
    for (const auto& [name, dims] : one.weights) {
      std::string all;
      for (const std::string& dim : dims) all += (all.empty() ? "" : ", ") + key_text(dim);
      weights.add(name, "[" + all + "]");
    }
    map.add("weights", weights.text());
  }
  return map.text();
}

std::string block_text(const Block& block, const std::string& margin) {
  std::string out = "\n";
  for (const Operation& one : block) out += margin + "- " + operation_text(one) + "\n";
  return out;
}

std::string blocks_text(const std::map<std::string, Block>& blocks, const std::string& margin) {
  std::string out = "\n";
  for (const auto& [name, block] : blocks) out += margin + key_text(name) + ":" + block_text(block, margin + "  ");
  return out;
}

std::string variation_text(const Variation& one) {
  Map map;
  map.add_text("block", one.block);
  if (!one.config.empty()) map.add("config", settings_text(one.config));
  return map.empty() ? "block" : map.text();
}

std::string rule_text(const LayerRule& rule) {
  Map map;
  if (rule.at.empty() && rule.every == 0) {
    std::string pattern;
    for (const Variation& one : rule.pattern) pattern += (pattern.empty() ? "" : ", ") + variation_text(one);
    map.add("pattern", "[" + pattern + "]");
    return map.text();
  }
  std::string at;
  for (const auto& [first, last] : rule.at) at += fmt::format("{}{}..{}", at.empty() ? "" : ", ", first, last);
  if (!at.empty()) map.add("at", "[" + at + "]");
  if (rule.every > 0) map.add("every", std::to_string(rule.every));
  if (rule.from > 0) map.add("from", std::to_string(rule.from));
  const Variation& own = rule.pattern.front();
  map.add_text("block", own.block);
  if (!own.config.empty()) map.add("config", settings_text(own.config));
  return map.text();
}

std::string source_text(const Source& source) {
  Map map;
  switch (source.verb) {
    case Source::Verb::direct:
      return in_quotes(source.name);
    case Source::Verb::tie:
      map.add("tie", in_quotes(source.name));
      break;
    case Source::Verb::stack_experts:
      map.add("stack_experts", in_quotes(source.name));
      break;
    case Source::Verb::concat: {
      std::string all;
      for (const Source& part : source.parts) all += (all.empty() ? "" : ", ") + source_text(part);
      map.add("concat", "[" + all + "]");
      break;
    }
    case Source::Verb::split:
      map.add("split", source_text(source.parts.front()));
      map.add("part", std::to_string(source.part));
      map.add("of", std::to_string(source.of));
      if (source.by_head) map.add("by_head", "true");
      break;
    case Source::Verb::transpose:
      map.add("transpose", source_text(source.parts.front()));
      break;
  }
  return map.text();
}

std::string architecture_text(const ModelFile& model) {
  std::string out = "architecture:\n  variant: " + model.variant.text + "\n";
  const auto part = [&](const char* key, const Settings& settings) {
    if (!settings.empty()) out += fmt::format("  {}: {}\n", key, settings_text(settings));
  };
  part("embedding", model.embedding);
  if (model.has_final_norm)
    part("final_norm", model.final_norm);
  else
    out += "  final_norm: false\n";
  part("head", model.head);
  out += "  block:" + block_text(model.block, "    ");
  if (!model.blocks.empty()) out += "  blocks:" + blocks_text(model.blocks, "    ");
  if (!model.layers.empty()) out += "  layers:\n";
  for (const LayerRule& rule : model.layers) out += "    - " + rule_text(rule) + "\n";
  return out;
}

}  // namespace

std::string printed_model(const ModelFile& model) {
  std::string out = "name: " + key_text(model.name.text) + "\ntype: " + model.type + "\n";
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) out += fmt::format("{}: {}\n", key, key_text(value));
  };
  text("description", model.description);
  out += architecture_text(model);
  if (!model.neurons.empty()) out += "neurons:" + blocks_text(model.neurons, "  ");
  out += "config:";
  for (const auto& [key, setting] : model.config) out += "\n  " + key_text(key) + ": " + value_text(setting.value);
  out += model.config.empty() ? " {}\n" : "\n";
  text("hf_architecture", model.hf_architecture);
  text("hf_model_type", model.hf_model_type);
  text("hf_prefix", model.hf_prefix);
  if (!model.hf_mapping.empty()) out += "hf_mapping:\n";
  for (const Mapping& mapping : model.hf_mapping)
    out += "  " + in_quotes(mapping.tensor.text) + ": " + source_text(mapping.source) + "\n";
  if (!model.hf_defaults.empty()) out += "hf_defaults:";
  for (const auto& [key, setting] : model.hf_defaults) out += "\n  " + key_text(key) + ": " + value_text(setting.value);
  if (!model.hf_defaults.empty()) out += "\n";
  if (!model.hf_ignored.empty()) out += "hf_ignored:\n";
  for (const std::string& name : model.hf_ignored) out += "  - " + in_quotes(name) + "\n";
  return out;
}

}  // namespace harmonics::engine::ndsl
