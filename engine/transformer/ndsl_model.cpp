#include "engine/transformer/ndsl_model.hpp"

#include <algorithm>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/base/read_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/model/weights_file.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/transformer/ndsl_library.hpp"
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/resolved_spec.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "engine/transformer/trained_weights.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".ndsl";

document::Limits limits_of_json() {
  document::Limits limits;
  limits.bytes = size_t{64} << 20;
  limits.nodes = 4'000'000;
  limits.expanded_bytes = size_t{256} << 20;
  return limits;
}

bool is_folder(const std::string& path) {
  std::error_code failed;
  return fs::is_directory(path, failed);
}

std::string beside(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

bool is_there(const std::string& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed);
}

// Returns the configuration of a folder; nothing for a file of weights.
std::optional<document::Document> configuration_of(const std::string& weights) {
  if (weights.empty() || !is_folder(weights)) return {};
  expect_model_folder(weights);
  return document::read_document(beside(weights, "config.json"), limits_of_json());
}

void add_file(NdslWeights& to, const std::string& path) {
  TensorFile file = read_safetensors(path);
  if (file.mapped) to.files.push_back(file.mapped);
  for (auto& [name, tensor] : file.tensors)
    if (!to.tensors.emplace(name, std::move(tensor)).second)
      throw Error(ErrorKind::Weights,
                  fmt::format("'{}': the tensor {} is in another file too", path, shown_name(name)));
}

// Returns whether the tensors are those of a folder with this model.
bool is_mapped(const CompiledNdsl& compiled, const std::map<std::string, HTensor>& tensors) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : tensors) shapes.emplace(name, tensor.shape());
  return !misfits_of(compiled, shapes).any();
}

// Returns the mapped file that contains the elements, or null if they were copied.
std::shared_ptr<const MappedFile> file_of(const NdslWeights& read, const HTensor& tensor) {
  const auto* at = static_cast<const std::byte*>(tensor.raw()->storage->data());
  for (const auto& file : read.files) {
    const auto* from = static_cast<const std::byte*>(file->data());
    if (at >= from && at < from + file->bytes()) return file;
  }
  return nullptr;
}

HTensor as_type(const HTensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || tensor.shape().back() % element_type(dtype).block != 0) return tensor;
  return cast(tensor.dtype() == DType::F32 ? tensor : cast(tensor, DType::F32), dtype);
}

// Converts a tensor for use as a parameter: to f32, except for matrices that are not trained.
HTensor as_parameter(const HTensor& tensor, const NdslOptions& options) {
  if (options.trainable || tensor.rank() < 2) return as_type(tensor, DType::F32);
  if (options.weight_type && tensor.rank() == 2) return as_type(tensor, *options.weight_type);
  const DType dtype = tensor.dtype();
  return dtype == DType::F64 || !is_float(dtype) ? as_type(tensor, DType::F32) : tensor;
}

namespace json = boost::json;

json::value json_of_node(const document::Node& node) {
  if (node.kind == document::Kind::null) return nullptr;
  if (const auto whole = document::whole_of(node)) return *whole;
  if (const auto real = document::real_of(node)) return *real;
  if (const auto truth = document::truth_of(node)) return *truth;
  if (node.kind == document::Kind::scalar) return json::string(node.text);
  if (node.kind == document::Kind::list) {
    json::array all;
    for (const document::Node& item : node.items) all.push_back(json_of_node(item));
    return all;
  }
  json::object all;
  for (const document::Entry& entry : node.entries) all[entry.key] = json_of_node(entry.value);
  return all;
}

// Returns the name of a setting in the configuration of this model_type.
std::string hf_name(const std::string& model_type, const NdslKey& key) {
  constexpr const char* kNames[][3] = {{"gpt2", "num_layers", "n_layer"},
                                       {"gpt2", "num_query_heads", "n_head"},
                                       {"gpt2", "hidden_size", "n_embd"},
                                       {"gpt2", "max_position_embeddings", "n_positions"},
                                       {"gpt2", "intermediate_size", "n_inner"},
                                       {"gpt2", "hidden_act", "activation_function"},
                                       {"gpt2", "layer_norm_eps", "layer_norm_epsilon"},
                                       {"gpt2", "attention_dropout", "attn_pdrop"},
                                       {"gpt2", "residual_dropout", "resid_pdrop"},
                                       {"gpt2", "embedding_dropout", "embd_pdrop"},
                                       {"phi", "residual_dropout", "resid_pdrop"},
                                       {"phi", "embedding_dropout", "embd_pdrop"},
                                       {"gpt_neox", "residual_dropout", "hidden_dropout"},
                                       {"gpt_neox", "rope_theta", "rotary_emb_base"},
                                       {"gpt_neox", "partial_rotary_factor", "rotary_pct"},
                                       {"mixtral", "num_experts", "num_local_experts"},
                                       {"gemma2", "hidden_act", "hidden_activation"},
                                       {"gemma3_text", "hidden_act", "hidden_activation"},
                                       {"gemma3_text", "rope_local_theta", "rope_local_base_freq"},
                                       {"", "num_layers", "num_hidden_layers"},
                                       {"", "num_query_heads", "num_attention_heads"},
                                       {"", "num_kv_heads", "num_key_value_heads"}};
  for (const auto& row : kNames)
    if ((row[0] == model_type || row[0][0] == 0) && row[1] == std::string_view(key.name)) return row[2];
  return key.name;
}

ModelMetadata metadata_of(const CompiledNdsl& compiled) {
  AttributeMap values;
  values.set("general.name", compiled.file.name.text);
  return ModelMetadata(compiled.file.path, std::move(values));
}

}  // namespace

NdslWeights read_ndsl_weights(const CompiledNdsl& compiled, const std::string& weights) {
  NdslWeights read;
  if (!is_folder(weights)) {
    TensorFile file = read_run_weights(weights, Registry::global());
    if (file.mapped) read.files.push_back(file.mapped);
    const bool is_trained = !is_mapped(compiled, file.tensors) && has_trained_tensors(compiled, file);
    read.tensors =
        is_trained ? trained_tensors(compiled, file, weights) : import_mapped(compiled, file.tensors, weights);
    return read;
  }
  if (is_there(beside(weights, kFolderIndex)))
    for (const std::string& shard : shards_of_index(beside(weights, kFolderIndex)))
      add_file(read, beside(weights, shard));
  else
    add_file(read, beside(weights, kFolderWeights));
  read.tensors = import_mapped(compiled, read.tensors, weights);
  return read;
}

std::vector<std::string> shards_of_index(const std::string& path) {
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : tensors_of_index(path))
    if (std::find(shards.begin(), shards.end(), shard) == shards.end()) shards.push_back(shard);
  return shards;
}

std::map<std::string, std::string> tensors_of_index(const std::string& path) {
  const document::Document index = document::read_document(path, limits_of_json());
  const document::Node* map = index.root.find("weight_map");
  if (!map || map->kind != document::Kind::map)
    throw Error(ErrorKind::Weights, fmt::format("'{}' has no 'weight_map'", path));
  std::map<std::string, std::string> shards;
  for (const document::Entry& entry : map->entries) {
    if (entry.value.kind != document::Kind::scalar)
      throw Error(ErrorKind::Weights, fmt::format("'{}': {} has no file", path, shown_name(entry.key)));
    expect_neighbour(entry.value.text);
    shards[entry.key] = entry.value.text;
  }
  return shards;
}

bool is_ndsl(const std::string& path_or_name) {
  if (path_or_name.ends_with(kEnding)) return true;
  std::error_code failed;  // files and folders take precedence over built-in models
  return builtin_ndsl(path_or_name) && !fs::exists(path_or_name, failed);
}

std::vector<std::string> builtin_ndsl_models() {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kBuiltinNdslCount; ++i) {
    const std::string name = kBuiltinNdsls[i].name;
    names.push_back(name.substr(0, name.size() - kEnding.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string description_of_ndsl(const std::string& name) { return read_ndsl(name).description; }

const char* builtin_ndsl(const std::string& name) {
  for (unsigned i = 0; i < kBuiltinNdslCount; ++i)
    if (kBuiltinNdsls[i].name == name + std::string(kEnding)) return kBuiltinNdsls[i].text;
  return nullptr;
}

namespace {

ndsl::ModelFile read_ndsl(const std::string& path_or_name, NdslFaults& faults) {
  if (const char* text = builtin_ndsl(path_or_name))
    return ndsl::parse_model_file(path_or_name + std::string(kEnding), text, "", builtin_ndsl, faults);
  if (path_or_name.ends_with(kEnding)) return ndsl::read_model_file(path_or_name, builtin_ndsl, faults);
  const std::vector<std::string> known = builtin_ndsl_models();
  const std::string meant = did_you_mean(path_or_name, known);
  throw Error(ErrorKind::Name, fmt::format("there is no model {}", shown_name(path_or_name)), {},
              {meant.empty() ? "models: " + comma_separated(known) + ", or a file that ends with .ndsl" : meant});
}

// Returns whether hf_mapping names a layer by number, which must then exist.
bool names_one_layer(const ndsl::ModelFile& file) {
  return std::any_of(file.hf_mapping.begin(), file.hf_mapping.end(), [](const ndsl::Mapping& mapping) {
    return mapping.tensor.text.starts_with("blocks[") && mapping.tensor.text.find("{i}") == std::string::npos;
  });
}

CompiledNdsl compile_whole(const ndsl::ModelFile& file, const NdslCompileOptions& options, NdslFaults& faults) {
  CompiledNdsl compiled = compile_ndsl(file, options, faults);
  if (faults.any()) check_mapping(compiled, faults);
  faults.throw_any();
  return compiled;
}

}  // namespace

std::optional<std::map<std::string, std::string>> settings_in(const std::string& text) {
  std::map<std::string, std::string> all;
  const auto trimmed = [](std::string part) {
    part.erase(0, part.find_first_not_of(' '));
    return part.erase(part.find_last_not_of(' ') + 1);
  };
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find(',', from), text.size()), at = text.find('=', from);
    if (at >= to) return {};
    all[trimmed(text.substr(from, at - from))] = trimmed(text.substr(at + 1, to - at - 1));
    from = to + 1;
  }
  return all;
}

ndsl::ModelFile read_ndsl(const std::string& path_or_name) {
  NdslFaults faults;
  ndsl::ModelFile file = read_ndsl(path_or_name, faults);
  faults.throw_any();
  return file;
}

void check_ndsl_file(const std::string& path_or_name, const std::map<std::string, std::string>& set) {
  NdslFaults faults;
  const ndsl::ModelFile file = read_ndsl(path_or_name, faults);
  NdslCompileOptions options;
  options.set = set;
  options.distinct_layers = !names_one_layer(file);
  const CompiledNdsl compiled = compile_whole(file, options, faults);
  (void)folder_tensors(compiled);
  check_ndsl(compiled);
}

std::shared_ptr<const CompiledNdsl> compile_ndsl_model(const std::string& path_or_name, const NdslOptions& options) {
  const std::optional<document::Document> config = configuration_of(options.weights);
  NdslCompileOptions compile;
  compile.set = options.set;
  compile.hf = config ? &*config : nullptr;
  compile.distinct_layers = options.distinct_layers;
  NdslFaults faults;
  const ndsl::ModelFile file = read_ndsl(path_or_name, faults);
  return std::make_shared<const CompiledNdsl>(compile_whole(file, compile, faults));
}

NdslModel open_ndsl(const std::string& path_or_name, const NdslOptions& options) {
  NdslModel opened;
  opened.compiled = compile_ndsl_model(path_or_name, options);
  opened.weights = options.weights;
  const CompiledNdsl& compiled = *opened.compiled;
  Model& model = opened.model;
  if (options.plan_only && options.weights.empty()) model.parameters->reserve_only();
  model.name = compiled.file.name.text;
  model.metadata = metadata_of(compiled);
  const Role role = options.trainable ? Role::weight : Role::frozen;
  TensorTypes types;
  if (options.weights.empty()) {
    for (const NdslTensor& tensor : compiled.tensors) {
      types[tensor.name] = {DType::F32, tensor.shape};
      const TensorType type{DType::F32, tensor.experts ? tensor.shape.from(1) : tensor.shape};
      for (int64_t e = 0; e < std::max<int64_t>(1, tensor.experts); ++e) {
        const std::string name = tensor.experts ? expert_name(tensor.name, e) : tensor.name;
        model.parameters->declare(name, type, role, tensor.init, options.seed).fixed = !options.trainable;
      }
    }
  } else {
    const NdslWeights read = read_ndsl_weights(compiled, options.weights);
    for (const NdslTensor& tensor : compiled.tensors) {
      DType dtype = DType::F32;
      for (int64_t e = 0; e < std::max<int64_t>(1, tensor.experts); ++e) {
        const std::string name = tensor.experts ? expert_name(tensor.name, e) : tensor.name;
        const HTensor numbers = as_parameter(read.tensors.at(name), options);
        dtype = numbers.dtype();
        model.parameters->adopt(name, numbers, file_of(read, numbers), role, tensor.init).fixed = !options.trainable;
      }
      types[tensor.name] = {dtype, tensor.shape};
    }
    for (const auto& file : read.files) file->expect_whole();
  }
  auto resolved = std::make_shared<ResolvedSpec>(compiled.spec, model.metadata, std::move(types), SpecOverrides{},
                                                 compiled.file.path);
  resolved->set_length(options.length);
  resolved->check_entries(options.cache);
  resolved->name_modules(modules_of(compiled));
  std::vector<Adapter> adapters;
  for (const AdapterFile& file : options.adapters)
    adapters.push_back(read_adapter(file, *resolved, Registry::global()));
  apply_adapters(adapters, *resolved, *model.parameters);
  if (options.lora) add_adapters(*options.lora, *resolved, model);
  ResolvedSpec::add_entries(std::move(resolved), model, options.cache);
  return opened;
}

ImportedModel imported_beside_ndsl(const std::string& folder, Registry& registry, bool whole) {
  const std::string file = model_file(folder);
  if (is_folder(folder)) {
    try {
      ImportOptions options;
      if (whole) options = {"huggingface", {{"whole", "true"}}};
      return import_model(folder, registry, options);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Weights && e.kind() != ErrorKind::Plugin) throw;
    }
  }
  if (!is_folder(folder) && is_model(file, registry)) return import_model(file, registry);
  ImportedModel imported;
  imported.path = file;
  imported.file = MappedFile::open(file);
  imported.metadata = ModelMetadata(file, {});
  return imported;
}

void check_ndsl(const CompiledNdsl& compiled) {
  TensorTypes types;
  for (const NdslTensor& tensor : compiled.tensors) types[tensor.name] = {DType::F32, tensor.shape};
  const ResolvedSpec resolved(compiled.spec, metadata_of(compiled), std::move(types), SpecOverrides{},
                              compiled.file.path);
  Tracer tracer("check");
  SpecTrace(resolved, tracer, {1, 1, 1}, false, DType::F32).run(SpecResult::all);
}

std::string folder_configuration(const CompiledNdsl& compiled) {
  json::object config;
  const std::string& type = compiled.file.hf_model_type;
  if (compiled.hf_config.kind == document::Kind::map) {
    config = json_of_node(compiled.hf_config).as_object();
  } else {
    if (!compiled.file.hf_architecture.empty()) config["architectures"] = json::array{compiled.file.hf_architecture};
    if (!type.empty()) config["model_type"] = type;
    config["tie_word_embeddings"] = compiled.tied;
  }
  for (const NdslKey& key : ndsl_keys()) {
    const auto setting = compiled.settings.find(key.name);
    if (setting == compiled.settings.end()) continue;
    std::string name = hf_name(type, key);
    for (const char* synonym : key.synonyms)
      if (config.contains(synonym)) name = synonym;
    if (config.contains(key.name)) name = key.name;
    config[name] = json_of_node(setting->second.value);
  }
  config.erase("dtype");
  config["torch_dtype"] = "float32";
  return plain_numbers(json::serialize(config)) + "\n";
}

}  // namespace harmonics::engine
