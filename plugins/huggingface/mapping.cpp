#include "mapping.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>

#include "embedded_specs.hpp"

namespace huggingface {

namespace {

constexpr size_t kLongestSpec = 1 << 20;

Half half_of(const Node& half) {
  constexpr std::pair<const char*, Half> kHalves[] = {
      {"first", Half::first}, {"second", Half::second}, {"even", Half::even}, {"odd", Half::odd}};
  if (!half.has()) return Half::whole;
  for (const auto& [name, value] : kHalves)
    if (half.text() == name) return value;
  half.fail("is " + half.shown());
}

Architecture architecture_of(const Node& spec) {
  Architecture a;
  a.name = spec["architectures"][size_t{0}].text();
  a.with_experts = spec["with_experts"].truth(false);
  const Node mapping = spec["hf_mapping"];
  for (const auto& [name, type] : mapping["classes"].entries()) a.classes.emplace_back(name, type.text());
  a.read = mapping["read"];
  if (const Node described = mapping["described"]; described.has())
    for (const auto& [from, to] : {std::pair("classes", &a.described), std::pair("settings", &a.describable)})
      for (size_t i = 0; i < described[from].size(); ++i) to->emplace_back(described[from][i].text());
  a.tied = mapping["tied"].truth();
  a.prefix = mapping["prefix"].text("");
  if (mapping["constants"].has())
    for (const auto& [key, value] : mapping["constants"].entries()) a.constants.emplace(key, value);
  if (mapping["window_pattern"].has()) a.window_pattern = mapping["window_pattern"].integer();
  for (size_t i = 0; i < mapping["metadata"].size(); ++i) {
    const Node row = mapping["metadata"][i];
    a.metadata.push_back({std::string(row["key"].text()),
                          std::string(row["config"].text()),
                          row["default"],
                          row["real"].truth(false),
                          {},
                          std::string(row["class"].text(""))});
    for (size_t n = 0; n < row["older"].size(); ++n) a.metadata.back().older.emplace_back(row["older"][n].text());
  }
  if (mapping["switches"].has())
    for (const auto& [setting, value] : mapping["switches"].entries()) a.switches.emplace(setting, value.truth());
  a.rotary = mapping["rotary"]["config"].text(a.rotary);
  a.rotary_part = mapping["rotary"]["default"].number(a.rotary_part);
  if (const Node rope = spec["architecture"]["prepare"]["rope"]; rope.has())
    for (const auto& [name, positions] : rope.entries()) {
      a.divides_frequencies = a.divides_frequencies || positions["divided_by"].text("") == "rope_freqs";
      if (positions["truncate"].is_number()) a.truncates = positions["truncate"].integer() != 0;
      a.window_unscaled = a.window_unscaled || (name == "window" && !positions["scaling"].has());
    }
  for (const auto& [setting, values] : mapping["expected"].entries()) a.expected.emplace_back(setting, values);
  if (mapping["unsaid"].has())
    for (const auto& [setting, value] : mapping["unsaid"].entries()) a.unsaid.emplace(setting, value);
  for (size_t i = 0; i < mapping["tensors"].size(); ++i) {
    const Node row = mapping["tensors"][i];
    a.tensors.push_back({std::string(row["name"].text()), std::string(row["hf"].text()),
                         std::string(row["permute"].text("")), row["add"].number(0.0),
                         std::string(row["tied"].text("")), std::string(row["when"].text("")), half_of(row["half"]),
                         row["transposed"].truth(false), std::string(row["by_head"].text(""))});
  }
  for (size_t i = 0; i < mapping["ignored"].size(); ++i) a.ignored.emplace_back(mapping["ignored"][i].text());
  return a;
}

// Returns the architecture of an embedded spec, or null if it has no hf_mapping. A spec is parsed when first needed:
// most runs need one of them.
const Architecture* architecture_at(unsigned number) {
  static std::mutex mutex;
  static std::map<unsigned, std::optional<Architecture>> parsed;
  const std::lock_guard lock(mutex);
  const auto [at, added] = parsed.try_emplace(number);
  if (added) {
    const EmbeddedSpec& file = kEmbeddedSpecs[number];
    const Node spec = Node::parse(file.text, file.name, kLongestSpec);
    if (spec["hf_mapping"].has()) at->second = architecture_of(spec);
  }
  return at->second ? &*at->second : nullptr;
}

// Returns the first architecture whose spec names `name` and that passes `test`, or null.
template <class Test>
const Architecture* find_named(std::string_view name, Test&& test) {
  const std::string quoted = '"' + std::string(name) + '"';
  for (unsigned i = 0; i < kEmbeddedSpecCount; ++i) {
    if (std::string_view(kEmbeddedSpecs[i].text).find(quoted) == std::string_view::npos) continue;
    const Architecture* a = architecture_at(i);
    if (a && test(*a)) return a;
  }
  return nullptr;
}

// Returns all architectures with an hf_mapping.
std::vector<const Architecture*> architectures() {
  std::vector<const Architecture*> all;
  for (unsigned i = 0; i < kEmbeddedSpecCount; ++i)
    if (const Architecture* a = architecture_at(i)) all.push_back(a);
  return all;
}

}  // namespace

bool Architecture::reads(const Node& config) const {
  if (!read.has()) return true;
  if (read.is_truth()) return read.truth();
  for (const auto& [setting, value] : read.entries())
    if (!config[setting].has() || config[setting].value() != value.value()) return false;
  return true;
}

bool Architecture::is_described(std::string_view name) const {
  return std::find(described.begin(), described.end(), name) != described.end();
}

const MetadataRow* Architecture::find_row(std::string_view config) const {
  for (const MetadataRow& row : metadata)
    if (row.config == config) return &row;
  return nullptr;
}

const Architecture* find_class(std::string_view name) {
  return find_named(name, [&](const Architecture& a) {
    return std::any_of(a.classes.begin(), a.classes.end(), [&](const auto& known) { return known.first == name; });
  });
}

const Architecture* find_architecture(std::string_view name, bool has_experts) {
  const auto find = [&](bool with_experts) {
    return find_named(name, [&](const Architecture& a) { return a.name == name && a.with_experts == with_experts; });
  };
  const Architecture* const a = has_experts ? find(true) : nullptr;
  return a ? a : find(false);
}

std::vector<std::string> known_classes() {
  std::vector<std::string> names;
  for (const Architecture* a : architectures())
    if (!a->read.has())
      for (const auto& [name, type] : a->classes) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string known_architectures() {
  std::string names;
  for (const Architecture* a : architectures())
    if (!a->with_experts) names += (names.empty() ? "" : ", ") + a->name;
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
