#include "exported_config.hpp"

#include <cmath>

namespace huggingface {

using namespace harmonics;

namespace {

void append(const json::value& value, size_t depth, std::string& to) {
  const std::string margin(2 * depth + 2, ' ');
  if (const auto* object = value.if_object(); object && !object->empty()) {
    to += "{";
    bool first = true;
    for (const auto& item : *object) {
      to += (first ? "\n" : ",\n") + margin + json::serialize(json::value(item.key())) + ": ";
      append(item.value(), depth + 1, to);
      first = false;
    }
    to += "\n" + std::string(2 * depth, ' ') + "}";
  } else if (const auto* list = value.if_array(); list && !list->empty() && depth < 3) {
    to += "[";
    bool first = true;
    for (const json::value& item : *list) {
      to += (first ? "\n" : ",\n") + margin;
      append(item, depth + 1, to);
      first = false;
    }
    to += "\n" + std::string(2 * depth, ' ') + "]";
  } else {
    to += json::serialize(value);
  }
}

// Returns a number as the shortest decimal that rounds to the same 32-bit float: numbers of GGUF have 32 bits.
json::value number_text(const MetadataValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) {
    const auto narrow = static_cast<float>(*real);
    if (static_cast<double>(narrow) != *real) return *real;
    for (int digits = 1; digits < 9; ++digits) {
      char text[32];
      std::snprintf(text, sizeof text, "%.*g", digits, *real);
      if (std::strtof(text, nullptr) == narrow) return std::strtod(text, nullptr);
    }
    return *real;
  }
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  throw Error(ErrorKind::Weights, "a setting of config.json is not a number");
}

std::string class_of(const MetadataMap& metadata, const Architecture& a) {
  if (const auto kept = metadata.find(kClass); kept != metadata.end())
    if (const auto* name = std::get_if<std::string>(&kept->second); name && find_class(*name) == &a) return *name;
  const bool window = number_of(metadata, a.key("attention.sliding_window"), 0) > 0;
  if (window && a.name == "llama") return "MistralForCausalLM";
  if (window && a.name == "olmo2") return "Olmo3ForCausalLM";
  return a.classes.front().first;
}

json::value first_of(const Node& values) {
  return values[size_t{0}].has() ? values[size_t{0}].value() : json::value(nullptr);
}

}  // namespace

std::string indented(const json::value& value) {
  std::string text;
  append(value, 0, text);
  return text + "\n";
}

std::string config_text(const MetadataMap& metadata, const Architecture& a, const ExportedWeights& weights) {
  const std::string name = class_of(metadata, a);
  json::object config;
  config["architectures"] = json::array{name};
  for (const auto& [known, type] : a.classes)
    if (known == name) config["model_type"] = type;
  const MetadataRow* windows_row = a.find_row("sliding_window_pattern");
  const auto given = metadata.find(a.key("attention.sliding_window_pattern"));
  const auto* windows = given == metadata.end() ? nullptr : std::get_if<std::vector<int64_t>>(&given->second);
  for (const MetadataRow& row : a.metadata) {
    const auto at = metadata.find(a.key(row.key));
    if (at == metadata.end()) continue;
    if (&row == windows_row && windows) continue;
    config[row.config] = number_text(without_copies(at->second));
    if (row.may_be_off() && number_of(metadata, at->first, 0) == 0) config[row.config] = nullptr;
  }
  for (const auto& [setting, values] : a.expected)
    if (!values[size_t{0}].is_text() || setting.starts_with("hidden_") || setting.starts_with("position_") ||
        setting.starts_with("activation_"))
      config[setting] = first_of(values);
  for (const auto& [setting, values] : a.expected)
    if (setting == "query_pre_attn_scalar") {
      const double heads = number_of(metadata, a.key("attention.head_count"), 1);
      const double width = number_of(metadata, a.key("embedding_length"), 0);
      const auto blocks = number_of(metadata, a.key("block_count"), 0);
      const bool by_width = (a.name == "gemma2" && blocks == 46) || (a.name == "gemma3" && blocks == 62);
      config[setting] = static_cast<int64_t>(
          by_width ? width / heads : number_of(metadata, a.key("attention.key_length"), width / heads));
    }
  for (const auto& [setting, on] : weights.switches) config[setting] = on;
  const double heads = number_of(metadata, a.key("attention.head_count"), 0);
  const double width = heads > 0 ? std::floor(number_of(metadata, a.key("embedding_length"), 0) / heads) : 0;
  const double head = number_of(metadata, a.key("attention.key_length"), a.rotary_part == 1 ? 0 : width);
  const double turned = number_of(metadata, a.key("rope.dimension_count"), head);
  if (head > 0 && turned / head != a.rotary_part) {
    double part = turned / head;
    while (turned < head && std::floor(part * head) < turned) part = std::nextafter(part, 1);  // the reader rounds down
    config[a.rotary] = part;
  }
  const bool window = number_of(metadata, a.key("attention.sliding_window"), 0) > 0;
  json::value scaling = rope_scaling(metadata, a, weights.rope_factors);
  const json::value base = config.contains("rope_theta") ? config["rope_theta"] : json::value(nullptr);
  const json::object unscaled{{"rope_type", "default"}, {"rope_theta", base}};
  if (a.name == "gptneox") config["rotary_emb_base"] = base;                 // the name that the class reads
  if (window && a.window_unscaled && !a.find_row("rope_local_base_freq")) {  // by the kind of a block
    json::object full = scaling.is_null() ? unscaled : scaling.as_object();
    full["rope_theta"] = base;
    config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", unscaled}};
  } else if (scaling.is_null()) {
    if (a.name == "gpt-oss") config["rope_parameters"] = unscaled;  // the default of the class is yarn
  } else {
    config["rope_scaling"] = std::move(scaling);
  }
  const int64_t blocks = static_cast<int64_t>(number_of(metadata, a.key("block_count"), 0));
  const int64_t pattern = windows       ? 1
                          : windows_row ? static_cast<int64_t>(number_of(metadata, a.key(windows_row->key), 6))
                                        : a.window_pattern.value_or(0);
  if (!window && a.find_row("sliding_window")) config["sliding_window"] = nullptr;
  if (pattern > 0) {
    json::array layers;
    for (int64_t i = 0; i < blocks; ++i) {
      const auto block = static_cast<size_t>(i);
      const bool full = windows && block < windows->size() ? (*windows)[block] == 0 : (i + 1) % pattern == 0;
      layers.emplace_back(!window || full ? "full_attention" : "sliding_attention");
    }
    config["layer_types"] = layers;
  }
  if (weights.blocks)
    config["quantization_config"] =
        json::object{{"quant_method", "mxfp4"},
                     {"modules_to_not_convert",
                      {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
  config["tie_word_embeddings"] = weights.tied;
  config["torch_dtype"] = weights.dtype;
  for (const auto& [key, setting] : {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
                                     std::pair("tokenizer.ggml.eos_token_id", "eos_token_id"),
                                     std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")})
    if (const auto at = metadata.find(key); at != metadata.end() && std::holds_alternative<int64_t>(at->second))
      config[setting] = std::get<int64_t>(at->second);
    else if (!a.constants.count("attention.causal"))  // explicitly null: the class would use its default id
      config[setting] = nullptr;
  return indented(config);
}

}  // namespace huggingface
