#include "engine/transformer/layer_models.hpp"

#include <filesystem>
#include <optional>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "engine/transformer/adapter.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/model_registry.hpp"

namespace harmonics::engine {

namespace {

constexpr double kInitialDeviation = 0.02;  // of matrices, as in GPT-2

bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

// Returns the type named by the request, or nothing.
std::optional<DType> requested_type(const LayerModelRequest& request) {
  if (request.type.empty()) return {};
  DType dtype = DType::F32;
  try {
    dtype = dtype_named(request.type);
  } catch (const Error& e) {
    throw Error(ErrorKind::Type, fmt::format("model(\"{}\"): {}", request.written, e.what()), {}, e.notes());
  }
  const bool computes = dtype == DType::F32 || is_half(dtype) || is_stored(dtype);
  if (!computes || (request.trains && dtype != DType::F32))
    throw Error(ErrorKind::Type,
                fmt::format("model(\"{}\", type={}): {}", request.written, request.type,
                            computes ? "weights of this type are not trained" : "products take no weights of it"),
                {},
                {computes ? "write type=f32, or freeze=true to keep the weights fixed"
                          : "types of weights: f32, f16, bf16 and the block types, such as q8_0"});
  return dtype;
}

// Returns the type of a parameter in the flow.
TensorType type_in_flow(const TensorType& found, const LayerModelRequest& request, const std::optional<DType>& wanted) {
  if (wanted == DType::F32) return {DType::F32, found.shape};
  if (wanted && found.shape.rank() == 2 && found.shape.back() % element_type(*wanted).block == 0)
    return {*wanted, found.shape};
  return {request.trains && is_half(found.dtype) ? DType::F32 : found.dtype, found.shape};
}

hx_init initial(const std::string& name, const Shape& shape) {
  if (shape.rank() >= 2) return {HX_INIT_NORMAL, 0, kInitialDeviation};
  return {HX_INIT_CONSTANT, name.ends_with("bias") ? 0.0 : 1.0, 0};
}

// Returns the parameters that are factors of rotary embeddings, and therefore not trainable weights.
std::set<std::string> constants_of(const ResolvedSpec& resolved) {
  std::set<std::string> names;
  for (const auto& [name, rope] : resolved.spec().ropes)
    for (const char* factors : {"divided_by", "divided_by_long"}) {
      const auto field = rope.fields.find(factors);
      if (field == rope.fields.end()) continue;
      const std::string tensor = resolved.variables().text(specs::text_of(field->second), rope.place);
      names.insert(resolved.weight(tensor, rope.place, {}).parameter);
    }
  return names;
}

void add_planned(const ResolvedSpec& resolved, LayerModel& opened) {
  const std::set<std::string> constants = constants_of(resolved);
  const auto add = [&](const std::string& name, const Shape& shape) {
    opened.parameters.emplace(
        name, LayerParameter{{DType::F32, shape}, {}, initial(name, shape), constants.count(name) != 0});
  };
  for (const auto& [key, weight] : resolved.weights()) {
    if (weight.parameter.empty()) continue;
    if (weight.experts == 0) add(weight.parameter, weight.shape);
    for (int64_t e = 0; e < weight.experts; ++e) add(expert_name(weight.parameter, e), weight.shape);
  }
  opened.notes.push_back("its folder has no weights, so they start as random numbers");
}

void add_read(const ImportedModel& imported, const ResolvedSpec& resolved, const LayerModelRequest& request,
              LayerModel& opened) {
  const std::optional<DType> wanted = requested_type(request);
  const std::set<std::string> constants = constants_of(resolved);
  size_t fixed = 0;
  std::string type;
  each_weight(imported, resolved, [&](const std::string& name, const HTensor& elements) {
    LayerParameter parameter{type_in_flow(type_of(elements), request, wanted), elements, {}, false};
    parameter.fixed = request.trains && is_stored(parameter.type.dtype);
    if (parameter.fixed) ++fixed, type = dtype_name(parameter.type.dtype);
    parameter.fixed = parameter.fixed || constants.count(name) != 0;
    opened.parameters.emplace(name, std::move(parameter));
  });
  opened.file = imported.file;
  if (fixed > 0)
    opened.notes.push_back(
        fmt::format("{} of its {} tensors are blocks, such as {}, and stay as they are; to train "
                    "them too: model(\"{}\", type=f32)",
                    fixed, opened.parameters.size(), type, request.written));
}

// Notes that a requested type has no effect on initial values.
void note_initial_type(const LayerModelRequest& request, LayerModel& opened) {
  if (const std::optional<DType> wanted = requested_type(request); wanted && *wanted != DType::F32)
    opened.notes.push_back(
        fmt::format("type={} has no effect on it: it starts with random numbers, which are f32", request.type));
}

// Notes matrices that keep another type than the requested one.
void note_other_types(const LayerModelRequest& request, LayerModel& opened) {
  const std::optional<DType> wanted = requested_type(request);
  if (!wanted || !is_stored(*wanted)) return;
  size_t matrices = 0, others = 0;
  std::string_view type;
  for (const auto& [name, parameter] : opened.parameters) {
    if (parameter.type.shape.rank() != 2) continue;
    ++matrices;
    if (parameter.type.dtype == *wanted) continue;
    ++others;
    type = dtype_name(parameter.type.dtype);
  }
  if (others > 0)
    opened.notes.push_back(
        fmt::format("{} of its {} stay {}: their rows are not whole blocks of {} numbers, as {} needs", others,
                    quantity(matrices, "matrix", "matrices"), type, element_type(*wanted).block, request.type));
}

// Adds the model's parameters to a store, where DoRA reads the norms of their rows.
void adopt_weights(const LayerModel& opened, ParameterStore& store) {
  for (const auto& [name, parameter] : opened.parameters) {
    if (!parameter.value) continue;
    const DType dtype = parameter.type.dtype;
    store.adopt(name, parameter.value.dtype() == dtype ? parameter.value : cast(parameter.value, dtype), opened.file,
                Role::frozen, {});
  }
}

std::optional<LoraSettings> lora_settings(const LayerModelRequest& request, bool has_weights) {
  if (request.lora.empty()) return {};
  LoraSettings settings = parse_lora(request.lora);
  if (!settings.from.empty()) settings.from = request.other_file(settings.from);
  if (settings.dora && !has_weights)
    throw Error(
        ErrorKind::Usage,
        fmt::format(
            "model(\"{}\"): lora= with dora needs the weights of a model, but this model starts with random weights",
            request.written));
  return settings;
}

// Adds the parameters of a store that the model lacks: the matrices of adapters.
void add_others(const ParameterStore& store, LayerModel& opened) {
  for (const auto& [name, stored] : store.all())
    if (!opened.parameters.count(name))
      opened.parameters.emplace(name, LayerParameter{stored.type, make_value(stored.type, stored.storage), stored.init,
                                                     stored.role == Role::frozen});
}

// Adds the matrices of adapters to the model's parameters. If an adapter is trained, all other parameters are fixed.
void add_layer_adapters(const LayerModelRequest& request, ResolvedSpec& resolved, LayerModel& opened,
                        Registry& registry) {
  Model scratch;
  scratch.name = request.written;
  scratch.metadata = opened.model.metadata;
  const std::optional<LoraSettings> settings = lora_settings(request, static_cast<bool>(opened.file));
  if (!request.adapter.empty() || (settings && (settings->dora || !settings->from.empty())))
    adopt_weights(opened, *scratch.parameters);
  if (!request.adapter.empty())
    apply_adapters({read_adapter({request.adapter, 1}, resolved, registry)}, resolved, *scratch.parameters);
  if (settings) {
    for (auto& [name, parameter] : opened.parameters) parameter.fixed = true;
    opened.model.adapter = add_adapters(*settings, resolved, scratch, registry);
  }
  add_others(*scratch.parameters, opened);
}

std::map<std::string, std::string> settings_of(const LayerModelRequest& request) {
  if (auto settings = settings_in(request.set)) return *settings;
  throw Error(ErrorKind::Usage,
              fmt::format("model(\"{}\", set=\"{}\") is not NAME=VALUE, NAME=VALUE", request.written, request.set));
}

// Opens a `.ndsl` file or built-in model, with the weights of a folder or initial values.
void open_described(const std::string& path_or_name, const LayerModelRequest& request, LayerModel& opened) {
  NdslOptions options;
  if (const std::optional<DType> wanted = requested_type(request); !request.trains) options.weight_type = wanted;
  options.set = settings_of(request);
  options.weights = request.weights;
  options.trainable = request.trains;
  options.lora = lora_settings(request, !request.weights.empty());
  if (!request.adapter.empty()) options.adapters = {{request.adapter, 1}};
  NdslModel described = open_ndsl(path_or_name, options);
  for (const NdslTensor& tensor : described.compiled->tensors)
    for (int64_t e = 0; e < std::max<int64_t>(1, tensor.experts); ++e) {
      const std::string name = tensor.experts ? expert_name(tensor.name, e) : tensor.name;
      const StoredTensor& stored = *described.model.parameters->find(name);
      const HTensor value = request.weights.empty() ? HTensor() : make_value(stored.type, stored.storage);
      opened.parameters.emplace(name, LayerParameter{stored.type, value, tensor.init, options.lora.has_value()});
      if (stored.file) opened.file = stored.file;
    }
  if (!request.weights.empty())
    note_other_types(request, opened);
  else
    note_initial_type(request, opened);
  add_others(*described.model.parameters, opened);
  opened.model = std::move(described.model);
  opened.model.parameters = std::make_shared<ParameterStore>();
  opened.model.name = request.written;
}

void open_imported(const LayerModelRequest& request, Registry& registry, LayerModel& opened) {
  if (!request.weights.empty())
    throw Error(ErrorKind::Usage,
                fmt::format("model(\"{}\") has its own weights, so weights= is not for it", request.written), {},
                {"weights= is for models of .ndsl files"});
  ModelOptions options;
  options.set = settings_of(request);
  const ImportedModel imported = import_language_model(request.path, registry, {options.set});
  std::shared_ptr<ResolvedSpec> resolved = resolve_spec(imported, options);
  opened.model.name = request.written;
  opened.model.metadata = imported.metadata;
  if (imported.tensors.empty()) {
    add_planned(*resolved, opened);
    note_initial_type(request, opened);
  } else {
    add_read(imported, *resolved, request, opened);
    note_other_types(request, opened);
  }
  if (!request.lora.empty() || !request.adapter.empty()) add_layer_adapters(request, *resolved, opened, registry);
  TensorTypes types;
  for (const auto& [name, parameter] : opened.parameters) types.emplace(name, parameter.type);
  resolved->set_types(std::move(types));
  ResolvedSpec::add_entries(std::move(resolved), opened.model, DType::F32);
}

}  // namespace

std::shared_ptr<const LayerModel> open_layer_model(const LayerModelRequest& given, Registry& registry) {
  LayerModelRequest request = given;
  if (!request.lora.empty() && !request.trains)
    throw Error(ErrorKind::Type,
                fmt::format("model(\"{}\"): lora= trains an adapter, but freeze=true trains nothing", request.written));
  if (!request.lora.empty()) request.trains = false;  // concerns the model's own weights
  auto opened = std::make_shared<LayerModel>();
  std::error_code failed;
  const bool there = std::filesystem::exists(request.path, failed);
  const std::string registered = there ? "" : ModelRegistry::global().file_of(request.written);
  if (request.path.ends_with(".ndsl"))
    open_described(request.path, request, *opened);
  else if (!registered.empty())
    open_described(registered, request, *opened);
  else if (!there && is_ndsl(request.written))
    open_described(request.written, request, *opened);
  else
    open_imported(request, registry, *opened);
  return opened;
}

int64_t context_of_model(const std::string& path_or_name, const std::map<std::string, std::string>& set,
                         Registry& registry) {
  if (is_ndsl(path_or_name)) {
    NdslOptions options;
    options.set = set;
    return compile_ndsl_model(path_or_name, options)->sizes.at("max_position_embeddings");
  }
  ModelOptions options;
  options.set = set;
  return resolve_spec(import_language_model(path_or_name, registry, {set}), options)->context();
}

}  // namespace harmonics::engine
