#include "engine/transformer/folder_classes.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include <boost/json.hpp>

#include "engine/base/spelling.hpp"
#include "engine/transformer/builtin_specs.hpp"
#include "engine/transformer/ndsl_library.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

constexpr std::string_view kKey = "\nhf_architecture: ";

// Returns the models that a spec's comment names, before what it says about them.
std::string models_of(const json::object& spec) {
  const json::value* comment = spec.if_contains("comment");
  if (!comment) return std::string(spec.at("name").as_string());
  const std::string text(comment->as_string());
  return text.substr(0, std::min(text.find(": "), text.size() - (text.ends_with('.') ? 1 : 0)));
}

// "Qwen3MoeForCausalLM" is "qwen3moe".
std::string stem_of(const std::string& name) {
  std::string stem = name;
  for (const std::string_view ending : {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model"})
    if (stem.size() > ending.size() && stem.ends_with(ending)) {
      stem.resize(stem.size() - ending.size());
      break;
    }
  std::transform(stem.begin(), stem.end(), stem.begin(), [](unsigned char c) { return std::tolower(c); });
  return stem;
}

std::string class_in(std::string_view ndsl) {
  const size_t at = ndsl.find(kKey);
  if (at == std::string_view::npos) return "";
  const size_t from = at + kKey.size();
  return std::string(ndsl.substr(from, ndsl.find('\n', from) - from));
}

}  // namespace

std::vector<KnownArchitecture> known_architectures() {
  std::vector<KnownArchitecture> all;
  for (unsigned i = 0; i < kBuiltinSpecCount; ++i) {
    const json::object spec = json::parse(kBuiltinSpecs[i].text).as_object();
    std::vector<std::string> classes;
    if (const json::value* mapping = spec.if_contains("hf_mapping"))
      for (const auto& item : mapping->at("classes").as_object()) classes.emplace_back(item.key());
    for (const json::value& name : spec.at("architectures").as_array())
      all.push_back({std::string(name.as_string()), models_of(spec), classes});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

std::string class_of_ndsl(const std::string& name) {
  for (unsigned i = 0; i < kBuiltinNdslCount; ++i)
    if (kBuiltinNdsls[i].name == name + ".ndsl") return class_in(kBuiltinNdsls[i].text);
  return "";
}

std::string ndsl_of_class(const std::string& name) {
  for (unsigned i = 0; i < kBuiltinNdslCount; ++i)
    if (!name.empty() && class_in(kBuiltinNdsls[i].text) == name) return kBuiltinNdsls[i].name;
  return "";
}

std::vector<std::string> nearest_classes(const std::string& name) {
  constexpr size_t kNamed = 3;
  std::set<std::string> known;
  for (const KnownArchitecture& a : known_architectures()) known.insert(a.classes.begin(), a.classes.end());
  for (unsigned i = 0; i < kBuiltinNdslCount; ++i)
    if (const std::string own = class_in(kBuiltinNdsls[i].text); !own.empty()) known.insert(own);
  const std::string stem = stem_of(name);
  // A common beginning counts more than other letters: a new version of a family is near the family.
  const auto distance = [&](const std::string& other) {
    const std::string own = stem_of(other);
    const auto [a, b] = std::mismatch(stem.begin(), stem.end(), own.begin(), own.end());
    return static_cast<int64_t>(edit_distance(stem, own)) - 2 * (a - stem.begin());
  };
  std::vector<std::string> all(known.begin(), known.end());
  std::stable_sort(all.begin(), all.end(),
                   [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  all.resize(std::min(all.size(), kNamed));
  return all;
}

}  // namespace harmonics::engine
