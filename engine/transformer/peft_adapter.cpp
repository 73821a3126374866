#include "engine/transformer/peft_adapter.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/file.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/adapter_names.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

// PEFT adds the head and the embedding as they were where it adapts them.
constexpr std::string_view kAsTheyWere[] = {".lm_head.base_layer.weight", ".embed_tokens.base_layer.weight"};
constexpr size_t kMostConfigBytes = 1 << 20;

// Entries that change what an adapter computes, beside LoRA itself.
constexpr const char* kRefused[] = {
    "lora_bias",  "modules_to_save", "layer_replication",       "target_parameters",
    "use_qalora", "arrow_config",    "trainable_token_indices", "alora_invocation_tokens"};

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

// Rows (i, i + width/2) of each head become neighbours; of a matrix, or of a vector's elements.
HTensor neighbours(const HTensor& b, int64_t width) {
  const int64_t rows = b.shape()[0], rank = b.size() / rows;
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

// Tensors of a module: A and B, those of an embedding, and the lengths of DoRA.
struct PartRow {
  char part;
  bool looked_up;
  std::string_view ending;
};
constexpr PartRow kParts[] = {{'A', false, ".lora_A.weight"},
                              {'B', false, ".lora_B.weight"},
                              {'A', false, ".lora_A.default.weight"},
                              {'B', false, ".lora_B.default.weight"},
                              {'A', true, ".lora_embedding_A"},
                              {'B', true, ".lora_embedding_B"},
                              {'A', true, ".lora_embedding_A.default"},
                              {'B', true, ".lora_embedding_B.default"},
                              {'M', false, ".lora_magnitude_vector"},
                              {'M', false, ".lora_magnitude_vector.weight"},
                              {'M', false, ".lora_magnitude_vector.default.weight"}};

struct ModuleParts {
  std::map<char, std::string> names;  // of tensors, by PartRow::part
  bool looked_up = false;
};

// "base_model.model.M.lora_A.weight" is a part of the module M.
void add_part(std::map<std::string, ModuleParts>& modules, const std::string& name, const std::string& path) {
  constexpr std::string_view kBegin = "base_model.model.";
  for (const PartRow& row : kParts)
    if (name.starts_with(kBegin) && name.size() > kBegin.size() + row.ending.size() && name.ends_with(row.ending)) {
      ModuleParts& module = modules[name.substr(kBegin.size(), name.size() - kBegin.size() - row.ending.size())];
      module.names[row.part] = name;
      module.looked_up |= row.looked_up;
      return;
    }
  throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' has the tensor {}; names are "
                                              "base_model.model.MODULE.lora_A.weight and lora_B",
                                              path, shown_name(name)));
}

HTensor floats_named(const TensorFile& tensors, const std::string& name, const std::string& path) {
  const HTensor& tensor = tensors.tensors.at(name);
  const DType dtype = tensor.dtype();
  if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16)
    throw Error(ErrorKind::Weights, fmt::format("the adapter '{}': {} is {}; it must be f32, f16 or bf16", path,
                                                shown_name(name), type_of(tensor).str()));
  return cast(tensor, DType::F32);
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
  std::map<std::string, ModuleParts> modules;
  for (const auto& [name, tensor] : tensors.tensors)
    if (std::none_of(std::begin(kAsTheyWere), std::end(kAsTheyWere),
                     [&, &of = name](std::string_view end) { return of.ends_with(end); }))
      add_part(modules, name, file.path);
  for (const auto& [module, parts] : modules) {
    for (const char part : {'A', 'B'})
      if (!parts.names.count(part))
        throw Error(ErrorKind::Weights,
                    fmt::format("the adapter '{}' has no lora_{} for {}", file.path, part, shown_name(module)));
    const std::string key = weight_of_module(module, resolved);
    if (key.empty())
      throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' changes the module {}, which no weight of GGUF is "
                                                  "known for",
                                                  file.path, shown_name(module)));
    const auto floats = [&, &names = parts.names](char part) {
      return floats_named(tensors, names.at(part), file.path);
    };
    LowRank pair{floats('A'), floats('B'), file.strength, config.alpha_of(module), parts.names.at('A')};
    if (parts.names.count('M')) pair.magnitude = reshape(floats('M'), {tensors.tensors.at(parts.names.at('M')).size()});
    if (pair.magnitude && file.strength != 1)
      throw Error(ErrorKind::Usage,
                  fmt::format("the adapter '{}' is of DoRA, whose strength is 1, not {:g}", file.path, file.strength));
    if (pair.a.rank() == 2 && pair.rank() > 0) pair.scale *= config.scale(module, pair.rank());
    pair.looked_up = parts.looked_up;
    if (pair.looked_up && pair.a.rank() == 2) pair.a = transpose(pair.a, {1, 0});
    if (width > 0 && has_rotary_rows(key) && pair.b.rank() == 2 && pair.b.shape()[0] > 0 &&
        pair.b.shape()[0] % width == 0) {
      pair.b = neighbours(pair.b, width);
      if (pair.magnitude && pair.magnitude.size() == pair.b.shape()[0])
        pair.magnitude = neighbours(pair.magnitude, width);
    }
    if (!adapter.pairs.emplace(key, std::move(pair)).second)
      throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' changes '{}' twice", file.path, key));
  }
  if (tensors.mapped) tensors.mapped->expect_whole();
  return adapter;
}

}  // namespace harmonics::engine
