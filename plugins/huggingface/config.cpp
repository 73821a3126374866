#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "formats/utf8.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

// Returns a setting from its location in newer versions of transformers.
Node newer_place(const Node& config, const std::string& name) {
  const Node rope = config["rope_parameters"];
  if (name == "rope_theta") {
    if (rope["rope_theta"].has()) return rope["rope_theta"];
    return rope["full_attention"]["rope_theta"];
  }
  if (name == "rope_local_base_freq") return rope["sliding_attention"]["rope_theta"];
  if (name == "sliding_window_pattern") return config["_sliding_window_pattern"];
  if (name == "num_experts") return config["num_local_experts"];
  return {};
}

Node setting(const Node& config, const std::string& name) {
  const Node plain = config[name];
  if (plain.has()) return plain;
  const Node newer = newer_place(config, name);
  return newer.has() ? newer : plain;
}

Node setting(const Node& config, const MetadataRow& row) {
  const Node given = setting(config, row.config);
  if (given.has()) return given;
  for (const std::string& name : row.older)
    if (config[name].has()) return config[name];
  return given;
}

double number_named(const Node& config, const Architecture& a, const std::string& name);

// Evaluates a number, "NAME", "NAME / NAME" or "NUMBER * NAME".
double evaluated(const Node& config, const Architecture& a, const Node& value) {
  if (value.is_number()) return value.number();
  const std::string text(value.text());
  if (const size_t star = text.find(" * "); star != std::string::npos)
    return static_cast<double>(std::stoll(text.substr(0, star))) * number_named(config, a, text.substr(star + 3));
  const size_t slash = text.find(" / ");
  if (slash == std::string::npos) return number_named(config, a, text);
  const double by = number_named(config, a, text.substr(slash + 3));
  if (!(by > 0)) config[text.substr(slash + 3)].fail("is " + std::to_string(by) + "; it must be above 0");
  return std::floor(number_named(config, a, text.substr(0, slash)) / by);
}

double number_named(const Node& config, const Architecture& a, const std::string& name) {
  const MetadataRow* row = a.find_row(name);
  const Node given = row ? setting(config, *row) : setting(config, name);
  if (given.has()) return given.number();
  if (row && row->otherwise.has()) return evaluated(config, a, row->otherwise);
  return given.number();  // throws: the setting is missing
}

// Returns one name for activations that are the same function, which transformers computes in several ways.
std::string_view activation_of(std::string_view name) {
  if (name == "swish") return "silu";
  if (name == "gelu_python") return "gelu";
  for (const char* other : {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu_tanh"})
    if (name == other) return "gelu_pytorch_tanh";
  return name;
}

// Returns whether an expected value {"value", "if"?, "unless"?} applies to models with these settings.
bool applies(const Node& config, const Node& wanted) {
  const auto all = [&](const Node& settings, bool equal) {
    if (!settings.has()) return true;
    for (const auto& [name, value] : settings.entries())
      if ((value.has() ? config[name].has() && config[name].value() == value.value() : !config[name].has()) != equal)
        return false;
    return true;
  };
  return all(wanted["if"], true) && all(wanted["unless"], false);
}

bool equals(const Node& config, const Architecture& a, const Node& given, const Node& wanted) {
  if (!wanted.has()) return false;  // null: no value is supported
  if (wanted.is_object()) return applies(config, wanted) && equals(config, a, given, wanted["value"]);
  if (wanted.is_text() && given.is_text()) return activation_of(given.text()) == activation_of(wanted.text());
  if (wanted.is_text() && !given.is_text() && wanted.text().find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 0)
    return false;  // not the name of a setting
  if (wanted.is_text() && !given.is_text()) return given.is_number() && given.number() == evaluated(config, a, wanted);
  if (wanted.is_number()) return given.is_number() && given.number() == wanted.number();
  return given.value() == wanted.value();
}

void expect_settings(const Node& config, const Architecture& a) {
  std::optional<std::pair<Node, std::string>> lacking;
  for (const auto& [name, values] : a.expected) {
    const auto unsaid = config[name].has() ? a.unsaid.end() : a.unsaid.find(name);
    const Node given = unsaid == a.unsaid.end() ? config[name] : unsaid->second;
    if (!given.has()) continue;
    bool known = false;
    std::string wanted;
    for (size_t i = 0; i < values.size(); ++i) {
      known = known || equals(config, a, given, values[i]);
      const Node value = values[i].is_object() ? values[i]["value"] : values[i];
      if (!values[i].is_object() || applies(config, values[i]))
        wanted += (wanted.empty() ? "" : " or ") + value.shown();
    }
    const std::string what = given.shown() + ", and only " + wanted + " is implemented for " + a.name;
    if (known) continue;
    const bool said = config[name].has();
    const std::string why = said ? "is " + what : "lacks '" + name + "', which stands for " + what;
    const bool describable = std::find(a.describable.begin(), a.describable.end(), name) != a.describable.end();
    if (!describable) (said ? given : config).fail(why);
    if (!lacking) lacking.emplace(said ? given : config, why);
  }
  if (lacking) lacking->first.lack(lacking->second);
}

// Returns the period of full attention: the last of every so many blocks sees all tokens, the others a window.
std::optional<int64_t> pattern_of(const Node& layers) {
  int64_t pattern = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string_view kind = layers[i].text();
    if (kind != "full_attention" && kind != "sliding_attention") layers[i].fail("is " + layers[i].shown());
    if (kind == "full_attention" && pattern == 0) pattern = static_cast<int64_t>(i) + 1;
  }
  if (pattern == 0) return {};
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool full = (static_cast<int64_t>(i) + 1) % pattern == 0;
    if (full != (layers[i].text() == "full_attention"))
      layers.lack("is not a pattern of " + std::to_string(pattern) + " blocks that repeats");
  }
  return pattern;
}

void read_patterns(const Node& config, Config& to) {
  const Architecture& a = *to.architecture;
  const Node layers = config["layer_types"];
  const MetadataRow* row = a.find_row("sliding_window_pattern");
  const bool window = to.count("attention.sliding_window", 0) > 0;
  if (layers.is_list() && (row || (a.window_pattern && window))) {
    const auto pattern = pattern_of(layers);
    const auto all = static_cast<int64_t>(layers.size()) + 1;  // a period beyond the last block: only windows
    if (row)
      to.metadata[a.key(row->key)] = pattern.value_or(all);
    else if (pattern ? *pattern != *a.window_pattern : all > *a.window_pattern)
      layers.lack("uses global attention in blocks other than the last of every " + std::to_string(*a.window_pattern));
  } else if (layers.is_list() && !window) {
    for (size_t i = 0; i < layers.size(); ++i)
      if (layers[i].text() != "full_attention") layers[i].lack("is " + layers[i].shown());
  }
  const Node plain = config["no_rope_layers"];
  for (size_t i = 0; i < plain.size(); ++i)
    if ((plain[i].integer() != 0) != ((i + 1) % 4 != 0))
      plain.lack("omits rotary positions in blocks other than every fourth");
}

const Architecture& architecture_of(const Node& config, const std::string& path) {
  const Node classes = config["architectures"];
  std::string names;
  for (size_t i = 0; i < classes.size(); ++i) {
    const std::string name(classes[i].text());
    if (const Architecture* found = find_class(name); found && found->reads(config)) return *found;
    names += (names.empty() ? "" : ", ") + printable(name, 80);
  }
  if (names.empty()) refuse(path, "names no architecture", "it needs \"architectures\": [\"LlamaForCausalLM\"]");
  std::string known;
  for (const std::string& name : known_classes()) known += (known.empty() ? "" : ", ") + name;
  refuse(path, "is a model of the architecture " + names + ", which is not known", "known ones: " + known);
}

}  // namespace

int64_t Config::count(const char* key, int64_t otherwise) const {
  return static_cast<int64_t>(number_of(metadata, architecture->key(key), static_cast<double>(otherwise)));
}

MetadataValue without_copies(const MetadataValue& value) {
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  if (!list || list->empty() || std::set<int64_t>(list->begin(), list->end()).size() > 1) return value;
  return list->front();
}

double number_of(const MetadataMap& metadata, const std::string& key, double otherwise) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return otherwise;
  const MetadataValue value = without_copies(at->second);
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  throw Error(ErrorKind::Weights, "the metadata '" + key + "' is not a number");
}

std::optional<OtherModel> other_model(std::string_view text, const std::string& path) {
  const Node config = Node::parse(text, path, kLongestConfig);
  if (!config.is_object()) return {};
  OtherModel other;
  other.file = config["model_dsl"].text("");
  other.vocabulary = config["vocab_size"].integer(0);
  const Node classes = config["architectures"];
  for (size_t i = 0; i < classes.size(); ++i) {
    if (other.name.empty()) other.name = classes[i].text();
    const Architecture* known = find_class(classes[i].text());
    if (!other.file.empty() || !known || !known->reads(config)) continue;
    if (!known->is_described(classes[i].text())) return {};
    try {
      read_config(text, path);
      return {};
    } catch (const Unsupported&) {  // the description may implement it
    }
  }
  if (other.file.empty() && other.name.empty()) return {};
  return other;
}

Config read_config(std::string_view text, const std::string& path) {
  const Node config = Node::parse(text, path, kLongestConfig);
  if (!config.is_object()) refuse(path, "holds no object");
  Config result;
  const Architecture& a = architecture_of(config, path);
  result.architecture = &a;
  expect_settings(config, a);
  result.metadata["general.architecture"] = a.name;
  for (size_t i = 0; i < config["architectures"].size(); ++i)
    if (const std::string name(config["architectures"][i].text()); find_class(name) == &a)
      result.metadata[kClass] = name;
  for (const auto& [key, value] : a.constants) result.metadata[a.key(key)] = value.truth();
  for (const auto& [name, otherwise] : a.switches) result.switches[name] = config[name].truth(otherwise);
  for (const MetadataRow& row : a.metadata) {
    if (!row.of.empty() && row.of != std::get<std::string>(result.metadata[kClass])) continue;
    const Node given = setting(config, row);
    if (!given.has() && !row.otherwise.has()) {
      if (!row.may_be_off()) given.fail("is missing");
      continue;
    }
    if (row.may_be_off() && config[row.config].is_null()) {
      result.metadata[a.key(row.key)] = row.real ? MetadataValue(0.0) : MetadataValue(int64_t{0});
      continue;
    }
    if (const Node value = given.has() ? given : row.otherwise; value.is_truth())
      result.metadata[a.key(row.key)] = value.truth();
    else if (row.real)
      result.metadata[a.key(row.key)] = in_32_bits(given.has() ? given.number() : evaluated(config, a, row.otherwise));
    else
      result.metadata[a.key(row.key)] =
          given.has() ? given.integer() : static_cast<int64_t>(evaluated(config, a, row.otherwise));
  }
  if (const auto width = result.metadata.find(a.key("attention.key_length")); width != result.metadata.end())
    result.metadata[a.key("attention.value_length")] = MetadataValue(width->second);
  read_patterns(config, result);
  read_rope(config, result);
  result.tied = config["tie_word_embeddings"].truth(a.tied);
  return result;
}

}  // namespace huggingface
