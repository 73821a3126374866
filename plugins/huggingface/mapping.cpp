#include "mapping.hpp"

#include <charconv>

#include "embedded_specs.hpp"

namespace huggingface {

namespace {

constexpr size_t kLongestSpec = 1 << 20;

Architecture architecture_of(const Node& spec) {
  Architecture a;
  a.name = spec["architectures"][size_t{0}].text();
  const Node mapping = spec["hf_mapping"];
  for (const auto& [name, type] : mapping["classes"].entries()) a.classes.emplace_back(name, type.text());
  a.tied = mapping["tied"].truth();
  a.prefix = mapping["prefix"].text("");
  if (mapping["constants"].has())
    for (const auto& [key, value] : mapping["constants"].entries()) a.constants.emplace(key, value);
  if (mapping["window_pattern"].has()) a.window_pattern = mapping["window_pattern"].integer();
  for (size_t i = 0; i < mapping["metadata"].size(); ++i) {
    const Node row = mapping["metadata"][i];
    a.metadata.push_back(
        {std::string(row["key"].text()), std::string(row["config"].text()), row["default"], row["real"].truth(false)});
  }
  for (const auto& [setting, values] : mapping["expected"].entries()) a.expected.emplace_back(setting, values);
  for (size_t i = 0; i < mapping["tensors"].size(); ++i) {
    const Node row = mapping["tensors"][i];
    a.tensors.push_back({std::string(row["name"].text()), std::string(row["hf"].text()),
                         std::string(row["permute"].text("")), row["add"].number(0.0),
                         std::string(row["tied"].text(""))});
  }
  for (size_t i = 0; i < mapping["ignored"].size(); ++i) a.ignored.emplace_back(mapping["ignored"][i].text());
  return a;
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> read;
    for (unsigned i = 0; i < kEmbeddedSpecCount; ++i)
      read.push_back(architecture_of(Node::parse(kEmbeddedSpecs[i].text, kEmbeddedSpecs[i].name, kLongestSpec)));
    return read;
  }();
  return all;
}

}  // namespace

const MetadataRow* Architecture::find_row(std::string_view config) const {
  for (const MetadataRow& row : metadata)
    if (row.config == config) return &row;
  return nullptr;
}

const Architecture* find_class(std::string_view name) {
  for (const Architecture& a : architectures())
    for (const auto& [known, type] : a.classes)
      if (known == name) return &a;
  return nullptr;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& a : architectures())
    if (a.name == name) return &a;
  return nullptr;
}

std::string known_classes() {
  std::string names;
  for (const Architecture& a : architectures())
    for (const auto& [name, type] : a.classes) names += (names.empty() ? "" : ", ") + name;
  return names;
}

std::string known_architectures() {
  std::string names;
  for (const Architecture& a : architectures()) names += (names.empty() ? "" : ", ") + a.name;
  return names;
}

std::optional<Place> match(std::string_view pattern, std::string_view name) {
  Place place;
  while (!pattern.empty()) {
    if (pattern[0] != '{') {
      if (name.empty() || name[0] != pattern[0]) return {};
      pattern.remove_prefix(1), name.remove_prefix(1);
      continue;
    }
    int64_t& number = pattern[1] == 'i' ? place.block : place.expert;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
    const auto digits = static_cast<size_t>(end - name.data());
    if (failed != std::errc() || name[0] == '-' || (name[0] == '0' && digits > 1)) return {};
    name.remove_prefix(digits);
    pattern.remove_prefix(3);
  }
  if (!name.empty()) return {};
  return place;
}

std::string filled(std::string_view pattern, const Place& place) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{') {
      name += pattern[i];
      continue;
    }
    name += std::to_string(pattern[i + 1] == 'i' ? place.block : place.expert);
    i += 2;
  }
  return name;
}

}  // namespace huggingface
