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
#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

// PEFT also saves the unchanged head and embedding if it adapts them.
constexpr std::string_view kAsTheyWere[] = {".lm_head.base_layer.weight", ".embed_tokens.base_layer.weight"};
constexpr size_t kMostConfigBytes = 1 << 20;

// Unsupported entries, which change what an adapter computes.
constexpr const char* kRefused[] = {"lora_bias",    "modules_to_save",         "layer_replication",      "use_qalora",
                                    "arrow_config", "trainable_token_indices", "alora_invocation_tokens"};

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

// Returns whether the pattern is the module's name or a suffix of it after a dot.
bool ends_with_module(std::string_view name, std::string_view pattern) {
  return name == pattern || (name.ends_with(pattern) && name[name.size() - pattern.size() - 1] == '.');
}

// Returns the name suffix that a pattern represents; PEFT writes some as ".*\.NAME". Throws for other regular
// expressions.
std::string plain_pattern(const std::string& pattern, const std::string& path) {
  constexpr std::string_view kAny = ".*\\.";
  const std::string end = pattern.starts_with(kAny) ? pattern.substr(kAny.size()) : pattern;
  if (end.find_first_of("^$*+?()[]{}|\\") == std::string::npos && !end.empty()) return end;
  throw Error(ErrorKind::Weights, fmt::format("'{}': the pattern {} of alpha_pattern is a regular expression; only the "
                                              "ends of names are implemented",
                                              path, shown_name(pattern)));
}

// Reorders rows of a matrix, or elements of a vector, from rotary pairs (i, i + width/2) to adjacent pairs.
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

// Tensors of a module: A and B, those of an embedding, and the magnitudes of DoRA.
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
  std::map<char, std::string> names;  // names of tensors, by PartRow::part
  bool looked_up = false;
};

// Adds a tensor to its module: "base_model.model.M.lora_A.weight" belongs to M. Throws for other names.
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
  const json::value all = parse_json(text, failed, 32);
  const json::object* fields = failed ? nullptr : all.if_object();
  if (!fields)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}' is not a JSON object{}", path, failed ? ": " + failed.message() : std::string()));
  const auto found = [&](const char* name) { return fields->if_contains(name); };
  const json::value* kind = found("peft_type");
  if (!kind || !kind->is_string() || kind->get_string() != "LORA")
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': peft_type is {}, but only LORA is implemented", path,
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
  if (const json::value* targeted = found("target_parameters"); targeted && !is_nothing(*targeted)) {
    if (!targeted->is_array())
      throw Error(ErrorKind::Weights, fmt::format("'{}': target_parameters is not a list", path));
    for (const json::value& one : targeted->get_array()) {
      const std::string name = one.is_string() ? std::string(one.get_string()) : std::string();
      if (!ends_with_module(name, "gate_up_proj") && !ends_with_module(name, "down_proj") &&
          !ends_with_module(name, "gate.weight"))
        throw Error(ErrorKind::Weights,
                    fmt::format("'{}': target_parameters has {}; gate_up_proj, down_proj and gate.weight are "
                                "implemented",
                                path, shown_name(name)));
      config.of_down_projections |= ends_with_module(name, "down_proj");
    }
  }
  if (const json::value* patterns = found("alpha_pattern"); patterns && !is_nothing(*patterns)) {
    if (!patterns->is_object())
      throw Error(ErrorKind::Weights, fmt::format("'{}': alpha_pattern is not an object", path));
    for (const auto& [pattern, value] : patterns->get_object()) {
      config.alphas.emplace_back(plain_pattern(pattern, path), number_of(value, "a value of alpha_pattern", path));
    }
  }
  return config;
}

namespace {

// Converts the tensors of modules to pairs for the model's weights.
class PairsOfModules {
 public:
  PairsOfModules(const AdapterFile& file, const ResolvedSpec& resolved, const PeftConfig& config,
                 const TensorFile& tensors)
      : path_(file.path),
        resolved_(resolved),
        config_(config),
        tensors_(tensors),
        adapter_{file.path, "PEFT", file.strength, {}} {}

  Adapter take(const std::map<std::string, ModuleParts>& modules) {
    for (const auto& [module, parts] : modules) {
      for (const char part : {'A', 'B'})
        if (!parts.names.count(part)) refuse(fmt::format("has no lora_{} for {}", part, shown_name(module)));
      if (module.ends_with(kExperts) || module.ends_with(kInnerExperts))
        add_stacks(module, parts, modules.count(module + std::string(kInner)) > 0);
      else
        add(module, parts);
    }
    for (auto& [key, pairs] : of_experts_) put(key, stacked_pairs(key, pairs));
    return std::move(adapter_);
  }

 private:
  static constexpr std::string_view kInner = ".base_layer", kExperts = ".experts",
                                    kInnerExperts = ".experts.base_layer";

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::Weights, fmt::format("the adapter '{}' {}", path_, what));
  }

  HTensor floats(const ModuleParts& parts, char part) const {
    return floats_named(tensors_, parts.names.at(part), path_);
  }

  LowRank pair_of(const std::string& module, const ModuleParts& parts) const {
    LowRank pair{floats(parts, 'A'), floats(parts, 'B'), adapter_.strength, config_.alpha_of(module),
                 parts.names.at('A')};
    if (parts.names.count('M'))
      pair.magnitude = reshape(floats(parts, 'M'), {tensors_.tensors.at(parts.names.at('M')).size()});
    if (pair.magnitude && adapter_.strength != 1)
      throw Error(ErrorKind::Usage,
                  fmt::format("the adapter '{}' uses DoRA, whose strength is 1, not {:g}", path_, adapter_.strength));
    if (pair.a.rank() == 2 && pair.rank() > 0) pair.scale *= config_.scale(module, pair.rank());
    pair.looked_up = parts.looked_up;
    if (pair.looked_up && pair.a.rank() == 2) pair.a = transpose(pair.a, {1, 0});
    return pair;
  }

  void add(const std::string& module, const ModuleParts& parts) {
    const std::vector<ModuleWeight> weights = weights_of_module(module, resolved_);
    if (weights.empty())
      refuse(fmt::format("changes the module {}, which no weight of GGUF is known for", shown_name(module)));
    const LowRank whole = pair_of(module, parts);
    for (const ModuleWeight& weight : weights) {
      LowRank pair = own_rows(whole, weight);
      if (weight.expert >= 0) {
        of_experts_[weight.key].emplace(weight.expert, std::move(pair));
        continue;
      }
      const int64_t rows = pair.b.rank() == 2 ? pair.b.shape()[0] : 0;
      const int64_t width = width_of_adjacent_pairs(resolved_, weight.key);
      if (width > 0 && rows > 0 && rows % width == 0) {
        pair.b = neighbours(pair.b, width);
        if (pair.magnitude && pair.magnitude.size() == rows) pair.magnitude = neighbours(pair.magnitude, width);
      }
      put(weight.key, std::move(pair));
    }
  }

  // Returns the rows of the module's pair that belong to the weight. Mismatched shapes are reported by expect_pairs().
  LowRank own_rows(const LowRank& whole, const ModuleWeight& weight) const {
    LowRank pair = whole;
    const auto bound = resolved_.weights().find(weight.key);
    if (weight.module.rows == 0 || pair.looked_up || bound == resolved_.weights().end()) return pair;
    const BoundWeight& matrix = bound->second;
    const int64_t rows = matrix.shape[matrix.transposed ? 1 : 0];
    if ((rows == weight.module.rows && weight.module.heads == 0) || pair.b.rank() != 2 ||
        pair.b.shape()[0] != weight.module.rows)
      return pair;
    const auto rows_of = [&](const HTensor& all) {
      const int64_t each = all.size() / weight.module.rows;
      HTensor own(DType::F32, all.rank() == 1 ? Shape{rows} : Shape{rows, each});
      auto* to = own.mutable_data<float>();
      for (int64_t r = 0; r < rows; ++r)
        to = std::copy_n(all.data<float>() + weight.module.place_of(r, rows) * each, each, to);
      return own;
    };
    pair.b = rows_of(pair.b);
    if (pair.magnitude && pair.magnitude.size() == weight.module.rows) pair.magnitude = rows_of(pair.magnitude);
    return pair;
  }

  void put(const std::string& key, LowRank pair) {
    if (!adapter_.pairs.emplace(key, std::move(pair)).second) refuse(fmt::format("changes '{}' twice", key));
  }

  int64_t experts_of(const std::string& key) const {
    const auto weight = resolved_.weights().find(key);
    if (weight == resolved_.weights().end() || weight->second.experts == 0)
      refuse(
          fmt::format("changes experts of '{}', but '{}' has none", printable(key, 80), resolved_.variables().model()));
    return weight->second.experts;
  }

  // Stacks the pairs of experts. Pads smaller ranks, and experts without a pair, with zeros.
  LowRank stacked_pairs(const std::string& key, const std::map<int64_t, LowRank>& pairs) const {
    const int64_t experts = experts_of(key);
    const LowRank& first = pairs.begin()->second;
    int64_t rank = 0;
    bool equal = true;
    for (const auto& [number, pair] : pairs) {
      if (number >= experts) refuse(fmt::format("changes the expert {} of {} of '{}'", number, experts, key));
      if (pair.magnitude) refuse(fmt::format("has '{}' of DoRA, which is not implemented for experts", pair.name));
      if (pair.a.rank() != 2 || pair.b.rank() != 2 || pair.a.shape()[1] != first.a.shape()[1] ||
          pair.b.shape()[0] != first.b.shape()[0] || pair.b.shape()[1] != pair.rank())
        refuse(fmt::format("has the matrices {} and {} for '{}', which do not match those of other experts",
                           pair.a.shape().str(), pair.b.shape().str(), printable(pair.name, 120)));
      rank = std::max(rank, pair.rank());
      equal = equal && pair.scale == first.scale;
    }
    const int64_t width = first.a.shape()[1], rows = first.b.shape()[0];
    LowRank all = first;
    all.a = HTensor(DType::F32, Shape{experts, rank, width});
    all.b = HTensor(DType::F32, Shape{experts, rows, rank});
    if (!equal) all.scale = 1;
    float *a = all.a.mutable_data<float>(), *b = all.b.mutable_data<float>();
    std::fill_n(a, all.a.size(), 0.0f);
    std::fill_n(b, all.b.size(), 0.0f);
    for (const auto& [number, pair] : pairs) {
      std::copy_n(pair.a.data<float>(), pair.a.size(), a + number * rank * width);
      const float* from = pair.b.data<float>();
      const auto factor = static_cast<float>(equal ? 1 : pair.scale);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < pair.rank(); ++k)
          b[(number * rows + r) * rank + k] = factor * from[r * pair.rank() + k];
    }
    return all;
  }

  // Adds experts stored in one parameter, as in transformers since version 5: A is [experts · rank, width], and B is
  // [rows, rank · experts]. gate_up_proj is the inner module if down_proj is also adapted.
  void add_stacks(const std::string& module, const ModuleParts& parts, bool has_inner) {
    const bool inner = module.ends_with(kInnerExperts);
    const std::string owner = inner ? module.substr(0, module.size() - kInner.size()) : module;
    const bool down = !inner && (has_inner || config_.of_down_projections);
    const LowRank whole = pair_of(owner + (down ? ".down_proj" : ".gate_up_proj"), parts);
    const std::vector<const char*> names =
        down ? std::vector<const char*>{"down_proj"} : std::vector<const char*>{"gate_proj", "up_proj"};
    for (size_t part = 0; part < names.size(); ++part)
      for (const ModuleWeight& weight : weights_of_module(owner + ".0." + names[part], resolved_))
        put(weight.key, part_of_stack(whole, weight.key, static_cast<int64_t>(part), static_cast<int64_t>(names.size()),
                                      owner + (down ? ".down_proj" : ".gate_up_proj")));
  }

  LowRank part_of_stack(const LowRank& whole, const std::string& key, int64_t part, int64_t parts,
                        const std::string& module) const {
    const int64_t experts = experts_of(key);
    if (whole.magnitude || whole.looked_up || whole.a.rank() != 2 || whole.b.rank() != 2 ||
        whole.a.shape()[0] % experts != 0 || whole.a.shape()[0] == 0 || whole.b.shape()[1] != whole.a.shape()[0] ||
        whole.b.shape()[0] % parts != 0)
      refuse(fmt::format("has the matrices {} and {} for '{}', which are not those of {} experts",
                         whole.a.shape().str(), whole.b.shape().str(), printable(whole.name, 120), experts));
    const int64_t rank = whole.a.shape()[0] / experts, width = whole.a.shape()[1], rows = whole.b.shape()[0] / parts;
    LowRank pair = whole;
    pair.scale = adapter_.strength * config_.scale(module, rank);
    pair.a = reshape(whole.a, Shape{experts, rank, width});
    pair.b = HTensor(DType::F32, Shape{experts, rows, rank});
    const float* from = whole.b.data<float>() + part * rows * rank * experts;
    float* to = pair.b.mutable_data<float>();
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < rank; ++k) to[(e * rows + r) * rank + k] = from[(r * rank + k) * experts + e];
    return pair;
  }

  std::string path_;
  const ResolvedSpec& resolved_;
  const PeftConfig& config_;
  const TensorFile& tensors_;
  Adapter adapter_;
  std::map<std::string, std::map<int64_t, LowRank>> of_experts_;  // by key and number
};

}  // namespace

Adapter read_peft_adapter(const AdapterFile& file, const ResolvedSpec& resolved) {
  const std::string folder = file.path + (file.path.ends_with('/') ? "" : "/");
  std::error_code failed;
  if (!std::filesystem::exists(folder + "adapter_config.json", failed))
    throw Error(ErrorKind::NoInput,
                fmt::format("the folder '{}' has no adapter_config.json, and so no adapter", file.path), {},
                {std::filesystem::exists(folder + "adapter/adapter_config.json", failed)
                     ? fmt::format("did you mean '{}adapter'?", folder)
                     : "give the folder of an adapter as PEFT writes it, or a file of GGUF"});
  const PeftConfig config =
      parse_peft_config(read_config(folder + "adapter_config.json"), folder + "adapter_config.json");
  const std::string matrices = folder + "adapter_model.safetensors";
  if (!std::filesystem::exists(matrices, failed) && std::filesystem::exists(folder + "adapter_model.bin", failed))
    throw Error(ErrorKind::Weights,
                fmt::format("the adapter '{}' has its matrices in adapter_model.bin, a pickle", file.path), {},
                {"save it as safetensors: save_pretrained(FOLDER, safe_serialization=True)"});
  const TensorFile tensors = read_safetensors(matrices);
  std::map<std::string, ModuleParts> modules;
  for (const auto& [name, tensor] : tensors.tensors)
    if (std::none_of(std::begin(kAsTheyWere), std::end(kAsTheyWere),
                     [&, &of = name](std::string_view end) { return of.ends_with(end); }))
      add_part(modules, name, file.path);
  Adapter adapter = PairsOfModules(file, resolved, config, tensors).take(modules);
  if (tensors.mapped) tensors.mapped->expect_whole();
  return adapter;
}

}  // namespace harmonics::engine
