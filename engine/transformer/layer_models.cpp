#include "engine/transformer/layer_models.hpp"

#include <optional>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/transformer/adapter.hpp"
#include "engine/transformer/architectures.hpp"

namespace harmonics::engine {

namespace {

constexpr double kInitialDeviation = 0.02;  // of matrices, as GPT-2's

bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

// The type that the request names; empty: none.
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

// The type of a parameter in the flow.
TensorType type_in_flow(const TensorType& found, const LayerModelRequest& request, const std::optional<DType>& wanted) {
  if (wanted && (found.shape.rank() == 2 || *wanted == DType::F32) &&
      found.shape.back() % element_type(*wanted).block == 0)
    return {*wanted, found.shape};
  return {request.trains && is_half(found.dtype) ? DType::F32 : found.dtype, found.shape};
}

hx_init initial(const std::string& name, const Shape& shape) {
  if (shape.rank() >= 2) return {HX_INIT_NORMAL, 0, kInitialDeviation};
  return {HX_INIT_CONSTANT, name.ends_with("bias") ? 0.0 : 1.0, 0};
}

void add_planned(const ResolvedSpec& resolved, LayerModel& opened) {
  const auto add = [&](const std::string& name, const Shape& shape) {
    opened.parameters.emplace(name, LayerParameter{{DType::F32, shape}, {}, initial(name, shape), false});
  };
  for (const auto& [key, weight] : resolved.weights()) {
    if (weight.parameter.empty()) continue;
    if (weight.experts == 0) add(weight.parameter, weight.shape);
    for (int64_t e = 0; e < weight.experts; ++e) add(expert_name(weight.parameter, e), weight.shape);
  }
  opened.notes.push_back("its folder has no weights, so they begin with random numbers");
}

void add_read(const ImportedModel& imported, const ResolvedSpec& resolved, const LayerModelRequest& request,
              LayerModel& opened) {
  const std::optional<DType> wanted = requested_type(request);
  size_t fixed = 0;
  std::string type;
  each_weight(imported, resolved, [&](const std::string& name, const HTensor& elements) {
    LayerParameter parameter{type_in_flow(type_of(elements), request, wanted), elements, {}, false};
    parameter.fixed = request.trains && is_stored(parameter.type.dtype);
    if (parameter.fixed) ++fixed, type = dtype_name(parameter.type.dtype);
    opened.parameters.emplace(name, std::move(parameter));
  });
  opened.file = imported.file;
  if (fixed > 0)
    opened.notes.push_back(
        fmt::format("{} of its {} tensors are blocks, such as {}, and stay as they are; to train "
                    "them too: model(\"{}\", type=f32)",
                    fixed, opened.parameters.size(), type, request.written));
}

// The model's own parameters as a store; DoRA reads the lengths of their rows.
void adopt_weights(const LayerModel& opened, ParameterStore& store) {
  for (const auto& [name, parameter] : opened.parameters) {
    if (!parameter.value) continue;
    const DType dtype = parameter.type.dtype;
    store.adopt(name, parameter.value.dtype() == dtype ? parameter.value : cast(parameter.value, dtype), opened.file,
                Role::frozen, {});
  }
}

// The matrices of adapters become parameters; with one that is trained, all others are fixed.
void add_layer_adapters(const LayerModelRequest& request, ResolvedSpec& resolved, LayerModel& opened,
                        Registry& registry) {
  Model scratch;
  scratch.name = request.written;
  scratch.metadata = opened.model.metadata;
  std::optional<LoraSettings> settings;
  if (!request.lora.empty()) settings = parse_lora(request.lora);
  if (settings && !settings->from.empty()) settings->from = request.other_file(settings->from);
  if (!request.adapter.empty() || (settings && (settings->dora || !settings->from.empty())))
    adopt_weights(opened, *scratch.parameters);
  if (!request.adapter.empty())
    apply_adapters({read_adapter({request.adapter, 1}, resolved, registry)}, resolved, *scratch.parameters);
  if (settings) {
    for (auto& [name, parameter] : opened.parameters) parameter.fixed = true;
    opened.model.adapter = add_adapters(*settings, resolved, scratch, registry);
  }
  for (const auto& [name, stored] : scratch.parameters->all())
    if (!opened.parameters.count(name))
      opened.parameters.emplace(name, LayerParameter{stored.type, scratch.parameters->tensor(name), stored.init,
                                                     stored.role == Role::frozen});
}

}  // namespace

std::shared_ptr<const LayerModel> open_layer_model(const LayerModelRequest& given, Registry& registry) {
  LayerModelRequest request = given;
  if (!request.lora.empty() && !request.trains)
    throw Error(ErrorKind::Type,
                fmt::format("model(\"{}\"): lora= trains an adapter, and freeze=true nothing", request.written));
  if (!request.lora.empty()) request.trains = false;  // of the model's own weights
  const ImportedModel imported = import_model(request.path, registry);
  std::shared_ptr<ResolvedSpec> resolved = resolve_spec(imported);
  auto opened = std::make_shared<LayerModel>();
  opened->model.name = request.written;
  opened->model.metadata = imported.metadata;
  if (imported.tensors.empty())
    add_planned(*resolved, *opened);
  else
    add_read(imported, *resolved, request, *opened);
  if (!request.lora.empty() || !request.adapter.empty()) add_layer_adapters(request, *resolved, *opened, registry);
  TensorTypes types;
  for (const auto& [name, parameter] : opened->parameters) types.emplace(name, parameter.type);
  resolved->set_types(std::move(types));
  ResolvedSpec::add_entries(std::move(resolved), opened->model, DType::F32);
  return opened;
}

}  // namespace harmonics::engine
