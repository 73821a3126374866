#include "engine/transformer/peft_adapter.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/file.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

// PEFT adds the head as it was where it adapts it.
constexpr std::string_view kHead = "base_model.model.lm_head.base_layer.weight";
constexpr size_t kMostConfigBytes = 1 << 20;

// Modules of a layer, and the names of their weights in GGUF.
constexpr std::pair<std::string_view, std::string_view> kModules[] = {
    {"self_attn.q_proj", "attn_q"},     {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},     {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},          {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},     {"mlp.gate", "ffn_gate_inp"},
    {"attention.self.query", "attn_q"}, {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"}, {"attention.output.dense", "attn_output"},
    {"intermediate.dense", "ffn_up"},   {"output.dense", "ffn_down"}};
constexpr std::string_view kLayers[] = {"model.layers.", "layers.", "bert.encoder.layer.", "encoder.layer."};

// Entries that change what an adapter computes, beside LoRA itself.
constexpr const char* kRefused[] = {
    "use_dora",   "lora_bias",    "modules_to_save",         "layer_replication",      "target_parameters",
    "use_qalora", "arrow_config", "trainable_token_indices", "alora_invocation_tokens"};

bool is_nothing(const json::value& value) {
  if (const auto* list = value.if_array()) return list->empty();
  if (const auto* map = value.if_object()) return map->empty();
  return value.is_null() || (value.is_bool() && !value.get_bool());
}

double number_of(const json::value& value, const std::string& what, const std::string& path) {
  json::error_code failed;
  const double number = value.is_number() ? value.to_number<double>(failed) : NAN;
  if (failed || !std::isfinite(number))
    throw Error(ErrorKind::Weights, fmt::format("'{}': {} is not a number", path, what));
  return number;
}

// A pattern is the end of a module's name, or all of it.
bool ends_with_module(std::string_view name, std::string_view pattern) {
  return name == pattern || (name.ends_with(pattern) && name[name.size() - pattern.size() - 1] == '.');
}

void expect_plain_pattern(const std::string& pattern, const std::string& path) {
  if (pattern.find_first_of("^$*+?()[]{}|\\") == std::string::npos && !pattern.empty()) return;
  throw Error(ErrorKind::Weights, fmt::format("'{}': the pattern {} of alpha_pattern is a regular expression; only the "
                                              "ends of names are implemented",
                                              path, shown_name(pattern)));
}

// The width of a head if the model's rotary pairs are neighbours, as PEFT's are not; else 0.
int64_t width_of_interleaved_heads(const ResolvedSpec& resolved) {
  bool interleaved = false;
  for (const auto& [name, rope] : resolved.spec().ropes)
    if (const auto pairing = rope.fields.find("pairing"); pairing != rope.fields.end())
      interleaved |= resolved.variables().text(specs::text_of(pairing->second), rope.place) == "interleaved";
  if (!interleaved) return 0;
  for (const specs::Tensor& tensor : resolved.spec().tensors) {
    if (tensor.role != "cache") continue;
    LocalValues first;
    if (tensor.repeat) first[tensor.repeat->variable] = 0;
    return cache_type(resolved, tensor, first, {1, 1, 1}, DType::F32).shape.back();
  }
  return 0;
}

// Rows (i, i + width/2) of each head become neighbours.
HTensor neighbours(const HTensor& b, int64_t width) {
  const int64_t rows = b.shape()[0], rank = b.shape()[1];
  HTensor all(DType::F32, b.shape());
  const float* from = b.data<float>();
  float* to = all.mutable_data<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t head = r / width, place = r % width;
    const int64_t source = head * width + (place % 2) * (width / 2) + place / 2;
    std::copy_n(from + source * rank, rank, to + r * rank);
  }
  return all;
}

std::string read_config(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (file->bytes() > kMostConfigBytes)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}' has {} bytes; the limit is {}", path, file->bytes(), kMostConfigBytes));
  return read_whole(*file, [&] { return std::string(static_cast<const char*>(file->data()), file->bytes()); });
}

// "base_model.model.M.lora_A.weight" is module M and 'A'.
std::pair<std::string, char> part_of(const std::string& name, const std::string& path) {
  constexpr std::string_view kBegin = "base_model.model.";
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' has the tensor {}{}", path, shown_name(name), what));
  };
  if (name.find("lora_magnitude_vector") != std::string::npos) refuse(" of DoRA, which is not implemented");
  if (name.find("lora_embedding_") != std::string::npos)
    refuse(", which changes an embedding; only linear maps can be");
  for (const char which : {'A', 'B'})
    for (const char* end : {".weight", ".default.weight"}) {
      const std::string ending = fmt::format(".lora_{}{}", which, end);
      if (name.starts_with(kBegin) && name.size() > kBegin.size() + ending.size() && name.ends_with(ending))
        return {name.substr(kBegin.size(), name.size() - kBegin.size() - ending.size()), which};
    }
  refuse("; names are base_model.model.MODULE.lora_A.weight and lora_B");
  return {};
}

}  // namespace

double PeftConfig::alpha_of(const std::string& module) const {
  for (const auto& [pattern, value] : alphas)
    if (ends_with_module(module, pattern)) return value;
  return alpha;
}

double PeftConfig::scale(const std::string& module, int64_t rank) const {
  const auto r = static_cast<double>(rank);
  return alpha_of(module) / (by_root ? std::sqrt(r) : r);
}

PeftConfig parse_peft_config(std::string_view text, const std::string& path) {
  json::error_code failed;
  json::parse_options depth;
  depth.max_depth = 32;
  const json::value all = json::parse({text.data(), text.size()}, failed, {}, depth);
  const json::object* fields = failed ? nullptr : all.if_object();
  if (!fields)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}' is not a JSON object{}", path, failed ? ": " + failed.message() : std::string()));
  const auto found = [&](const char* name) { return fields->if_contains(name); };
  const json::value* kind = found("peft_type");
  if (!kind || !kind->is_string() || kind->get_string() != "LORA")
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': peft_type is {}, and only LORA is implemented", path,
                            kind && kind->is_string() ? shown_name(std::string(kind->get_string())) : "missing"));
  for (const char* name : kRefused)
    if (const json::value* value = found(name); value && !is_nothing(*value))
      throw Error(ErrorKind::Weights, fmt::format("'{}': {} is not implemented", path, name));
  if (const json::value* bias = found("bias"); bias && !(bias->is_string() && bias->get_string() == "none"))
    throw Error(ErrorKind::Weights, fmt::format("'{}': an adapter with biases is not implemented", path));
  PeftConfig config;
  const json::value* alpha = found("lora_alpha");
  if (!alpha) throw Error(ErrorKind::Weights, fmt::format("'{}' has no lora_alpha", path));
  config.alpha = number_of(*alpha, "lora_alpha", path);
  const json::value* root = found("use_rslora");
  config.by_root = root && !is_nothing(*root);
  if (const json::value* patterns = found("alpha_pattern"); patterns && !is_nothing(*patterns)) {
    if (!patterns->is_object())
      throw Error(ErrorKind::Weights, fmt::format("'{}': alpha_pattern is not an object", path));
    for (const auto& [pattern, value] : patterns->get_object()) {
      expect_plain_pattern(pattern, path);
      config.alphas[pattern] = number_of(value, "a value of alpha_pattern", path);
    }
  }
  return config;
}

std::string weight_of_module(std::string_view module) {
  if (module == "lm_head") return "output.weight";
  for (const std::string_view begin : kLayers) {
    if (!module.starts_with(begin)) continue;
    const std::string_view rest = module.substr(begin.size());
    const size_t dot = rest.find('.');
    if (dot == 0 || dot == std::string_view::npos || dot > 6) return "";
    const std::string_view layer = rest.substr(0, dot), part = rest.substr(dot + 1);
    if (layer.find_first_not_of("0123456789") != std::string_view::npos) return "";
    for (const auto& [theirs, ours] : kModules)
      if (part == theirs) return fmt::format("blk.{}.{}.weight", layer, ours);
    return "";
  }
  return "";
}

Adapter read_peft_adapter(const AdapterFile& file, const ResolvedSpec& resolved) {
  const std::string folder = file.path + (file.path.ends_with('/') ? "" : "/");
  const PeftConfig config =
      parse_peft_config(read_config(folder + "adapter_config.json"), folder + "adapter_config.json");
  std::error_code failed;
  const std::string matrices = folder + "adapter_model.safetensors";
  if (!std::filesystem::exists(matrices, failed) && std::filesystem::exists(folder + "adapter_model.bin", failed))
    throw Error(ErrorKind::Weights,
                fmt::format("the adapter '{}' has its matrices in adapter_model.bin, a pickle", file.path), {},
                {"save it as safetensors: save_pretrained(FOLDER, safe_serialization=True)"});
  const TensorFile tensors = read_safetensors(matrices);
  const int64_t width = width_of_interleaved_heads(resolved);
  Adapter adapter{file.path, "PEFT", file.strength, {}};
  std::map<std::string, std::map<char, std::string>> modules;  // names of A and B
  for (const auto& [name, tensor] : tensors.tensors) {
    if (name == kHead) continue;
    const auto [module, part] = part_of(name, file.path);
    modules[module][part] = name;
  }
  for (const auto& [module, parts] : modules) {
    for (const char part : {'A', 'B'})
      if (!parts.count(part))
        throw Error(ErrorKind::Weights,
                    fmt::format("the adapter '{}' has no lora_{} for {}", file.path, part, shown_name(module)));
    const std::string& name = parts.at('A');
    const std::string key = weight_of_module(module);
    if (key.empty())
      throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' changes the module {}, which no weight of GGUF is "
                                                  "known for",
                                                  file.path, shown_name(module)));
    const auto floats = [&, &of = parts](char part) {
      const HTensor& tensor = tensors.tensors.at(of.at(part));
      const DType dtype = tensor.dtype();
      if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16)
        throw Error(ErrorKind::Weights, fmt::format("the adapter '{}': {} is {}; it must be f32, f16 or bf16",
                                                    file.path, shown_name(of.at(part)), type_of(tensor).str()));
      return cast(tensor, DType::F32);
    };
    LowRank pair{floats('A'), floats('B'), file.strength, config.alpha_of(module), name};
    if (pair.a.rank() == 2 && pair.rank() > 0) pair.scale *= config.scale(module, pair.rank());
    const bool turned = key.ends_with("attn_q.weight") || key.ends_with("attn_k.weight");
    if (width > 0 && turned && pair.b.rank() == 2 && pair.b.shape()[0] % width == 0) pair.b = neighbours(pair.b, width);
    if (!adapter.pairs.emplace(key, std::move(pair)).second)
      throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' changes '{}' twice", file.path, key));
  }
  if (tensors.mapped) tensors.mapped->expect_whole();
  return adapter;
}

}  // namespace harmonics::engine
