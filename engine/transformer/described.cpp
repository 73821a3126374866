#include "engine/transformer/described.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "dsl/ndsl/print.hpp"
#include "engine/base/read_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/transformer/folder_classes.hpp"
#include "engine/transformer/ndsl_library.hpp"
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/resolved_spec.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kConfiguration = "huggingface.config";
constexpr const char* kNamedDescription = "huggingface.model_dsl";
constexpr const char* kClassOfFolder = "huggingface.architecture";

// Converts vectors, and matrices of unsupported types, to f32; programs compute in f32, with weights of any type.
HTensor as_weight(const HTensor& tensor) {
  const DType dtype = tensor.dtype();
  const bool stays = tensor.rank() >= 2 && dtype != DType::F64 && (is_float(dtype) || is_stored(dtype));
  return stays || dtype == DType::F32 ? tensor : cast(tensor, DType::F32);
}

HTensor stacked_experts(const std::vector<HTensor>& matrices) {
  const TensorType one = type_of(matrices.front());
  std::vector<int64_t> shape = one.shape.vector();
  shape.insert(shape.begin(), static_cast<int64_t>(matrices.size()));
  const size_t bytes = one.bytes();
  const auto storage = std::make_shared<Storage>(bytes * matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i)
    std::memcpy(static_cast<std::byte*>(storage->data()) + i * bytes, matrices[i].bytes(), bytes);
  return make_value({one.dtype, Shape(shape)}, storage);
}

void stack(const CompiledNdsl& compiled, std::map<std::string, HTensor>& tensors) {
  for (const NdslTensor& tensor : compiled.tensors) {
    if (tensor.experts == 0) continue;
    std::vector<HTensor> all;
    for (int64_t e = 0; e < tensor.experts; ++e) {
      const auto one = tensors.extract(expert_name(tensor.name, e));
      all.push_back(one.mapped());
    }
    tensors[tensor.name] = stacked_experts(all);
  }
}

// Replaces tensors and metadata of a folder by these tensors and the description.
void describe(ImportedModel& imported, const CompiledNdsl& compiled, std::map<std::string, HTensor> tensors,
              const DescribedOptions& options) {
  for (auto& [name, tensor] : tensors) tensor = as_weight(tensor);
  if (options.whole && !tensors.empty()) stack(compiled, tensors);
  imported.tensors = std::move(tensors);
  imported.origins.clear();
  AttributeMap metadata;
  for (const auto& [key, value] : imported.metadata.values().entries())
    if (key.starts_with("tokenizer.") || key == "huggingface.eos_token_ids" || key == kClassOfFolder ||
        key == kConfiguration || key == kNoTokenizer)
      metadata.set(key, value);
  metadata.set("general.architecture", std::string(kDescribedArchitecture));
  metadata.set("general.name", compiled.file.name.text);
  metadata.set(kDescribedBy, ndsl::printed_model(whole_description(compiled)));
  imported.metadata = ModelMetadata(imported.path, std::move(metadata));
}

ndsl::ModelFile description_in(const ImportedModel& imported) {
  const ModelMetadata& metadata = imported.metadata;
  if (metadata.has(kNamedDescription))
    return ndsl::parse_model_file(imported.path + ": model_dsl", metadata.text(kNamedDescription), "", builtin_ndsl);
  const std::string name = metadata.text(kClassOfFolder, "");
  const std::string builtin = ndsl_of_class(name);
  if (builtin.empty())
    throw Error(
        ErrorKind::Weights,
        fmt::format("'{}' is a model of the architecture {}, which is not known", imported.path, shown_name(name)), {},
        {"the nearest known ones: " + comma_separated(nearest_classes(name)) + "; 'harmonics list models' shows all",
         "if one of them computes the same, name it in \"architectures\" of config.json",
         "a description of your own: \"model_dsl\": \"FILE.ndsl\" in its config.json, or generate FILE.ndsl "
         "--weights FOLDER"});
  return read_ndsl(builtin.substr(0, builtin.rfind('.')));
}

// Removes settings given by the user, including synonyms, from the settings of parts.
void forget(ndsl::Settings& settings, const std::set<std::string>& names) {
  std::erase_if(settings, [&](const auto& setting) { return names.count(setting.first) != 0; });
}

void forget(ndsl::Block& block, const std::set<std::string>& names) {
  for (ndsl::Operation& one : block) forget(one.config, names);
}

std::map<std::string, HTensor> initial_values(const CompiledNdsl& compiled, uint64_t seed) {
  std::map<std::string, HTensor> tensors;
  ParameterStore store;
  for (const NdslTensor& tensor : compiled.tensors)
    for (int64_t e = 0; e < std::max<int64_t>(1, tensor.experts); ++e) {
      const std::string name = tensor.experts ? expert_name(tensor.name, e) : tensor.name;
      store.declare(name, {DType::F32, tensor.experts ? tensor.shape.from(1) : tensor.shape}, Role::frozen, tensor.init,
                    seed);
      tensors[name] = store.tensor(name);
    }
  return tensors;
}

}  // namespace

ndsl::ModelFile whole_description(const CompiledNdsl& compiled) {
  ndsl::ModelFile file = compiled.file;
  file.config.clear();
  file.hf_defaults.clear();  // all settings follow
  for (const auto& [key, setting] : compiled.settings)
    if (setting.value.kind != document::Kind::null && key != "rope_parameters") file.config[key] = setting;
  std::set<std::string> names;
  for (const NdslKey& key : ndsl_keys()) {
    if (!compiled.set.count(key.name)) continue;
    names.insert(key.name);
    names.insert(key.synonyms.begin(), key.synonyms.end());
  }
  forget(file.block, names);
  for (auto& [name, block] : file.blocks) forget(block, names);
  for (auto& [name, block] : file.neurons) forget(block, names);
  for (ndsl::LayerRule& rule : file.layers)
    for (ndsl::Variation& variation : rule.pattern) forget(variation.config, names);
  for (ndsl::Settings* part : {&file.embedding, &file.final_norm, &file.head}) forget(*part, names);
  return file;
}

ImportedModel import_language_model(const std::string& path, Registry& registry, const DescribedOptions& options) {
  ImportOptions how;
  if (!options.weights) how = {"huggingface", {{"weights", "false"}}};
  ImportedModel imported = import_model(path, registry, how);
  const auto& arguments = imported.importer->arguments;
  const auto has_whole = [](const ArgumentSpec& a) { return a.name == "whole" && a.type == HX_ARG_BOOL; };
  if (options.whole && std::any_of(arguments.begin(), arguments.end(), has_whole))
    imported = import_model(path, registry, {imported.importer->name, {{"whole", "true"}}});
  if (!imported.metadata.has(kConfiguration) || imported.metadata.has(kDescribedBy)) return imported;
  const auto source = std::make_shared<const SourceText>(imported.path, imported.metadata.text(kConfiguration));
  const document::Document config = document::parse_document(source);
  const CompiledNdsl compiled = compile_ndsl(description_in(imported), {options.set, &config});
  std::map<std::string, HTensor> tensors;
  if (!imported.tensors.empty()) tensors = import_mapped(compiled, imported.tensors, imported.path);
  describe(imported, compiled, std::move(tensors), options);
  return imported;
}

ImportedModel import_described(const std::string& path_or_name, const std::string& weights, Registry& registry,
                               const DescribedOptions& options) {
  NdslOptions of_file;
  of_file.set = options.set;
  of_file.weights = weights;
  const auto compiled = compile_ndsl_model(path_or_name, of_file);
  if (weights.empty()) {
    ImportedModel imported;
    imported.path = path_or_name;
    describe(imported, *compiled, initial_values(*compiled, options.seed), options);
    return imported;
  }
  ImportedModel imported = imported_beside_ndsl(weights, registry, options.whole);
  if (const std::string file = model_file(weights); file != weights) {
    AttributeMap metadata = imported.metadata.values();
    metadata.set(kConfiguration, read_file(file, size_t{1} << 20));
    imported.metadata = ModelMetadata(imported.path, std::move(metadata));
  }
  NdslWeights read = read_ndsl_weights(*compiled, weights);
  describe(imported, *compiled, std::move(read.tensors), options);
  imported.others = std::move(read.files);
  return imported;
}

std::shared_ptr<const CompiledNdsl> description_of(const ImportedModel& imported, const SpecOverrides& set) {
  const ModelMetadata& metadata = imported.metadata;
  if (!metadata.has(kDescribedBy)) return nullptr;
  auto compiled = std::make_shared<CompiledNdsl>(compile_ndsl(
      ndsl::parse_model_file(imported.path, metadata.text(kDescribedBy), "", builtin_ndsl), {set, nullptr}));
  if (metadata.has(kConfiguration))
    compiled->hf_config =
        document::parse_document(std::make_shared<const SourceText>(imported.path, metadata.text(kConfiguration))).root;
  return compiled;
}

}  // namespace harmonics::engine
