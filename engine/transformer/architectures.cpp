#include "engine/transformer/architectures.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "dsl/spec/reader.hpp"
#include "engine/base/spelling.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/adapter_names.hpp"
#include "engine/transformer/builtin_specs.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/ndsl_mapping.hpp"

namespace harmonics::engine {

namespace {

// Converts the matrix to `dtype`, unless its row length is not a multiple of the block size.
HTensor as(DType dtype, const HTensor& tensor) {
  if (tensor.rank() != 2 || tensor.dtype() == dtype || tensor.shape().back() % element_type(dtype).block != 0)
    return tensor;
  return cast(cast(tensor, DType::F32), dtype);
}

// Parsed when first needed: a model needs one of them.
const specs::Spec& builtin(unsigned number) {
  static std::mutex mutex;
  static std::map<unsigned, specs::Spec> parsed;
  const std::lock_guard lock(mutex);
  const auto at = parsed.find(number);
  if (at != parsed.end()) return at->second;
  const BuiltinSpec& file = kBuiltinSpecs[number];
  return parsed.emplace(number, specs::parse_spec(file.name, file.text)).first->second;
}

// Returns the spec of the model's architecture, or null. Of an architecture with two, the one for models with experts
// is taken if the model has some.
const specs::Spec* find_builtin(const ModelMetadata& metadata) {
  const std::string architecture = metadata.text("general.architecture", ""), quoted = '"' + architecture + '"';
  const bool has_experts = metadata.integer(architecture + ".expert_count", 0) > 0;
  const specs::Spec* other = nullptr;
  for (unsigned i = 0; i < kBuiltinSpecCount; ++i) {
    if (std::string_view(kBuiltinSpecs[i].text).find(quoted) == std::string_view::npos) continue;
    const std::vector<std::string>& names = builtin(i).architectures;
    if (std::find(names.begin(), names.end(), architecture) == names.end()) continue;
    if (builtin(i).with_experts == has_experts) return &builtin(i);
    if (!builtin(i).with_experts) other = &builtin(i);
  }
  return other;
}

// Returns "X" for "X[0]", the first of the matrices that make up the stack X; "" for other names.
std::string stack_of(const std::string& name) {
  return name.ends_with("[0]") ? name.substr(0, name.size() - 3) : std::string();
}

// Returns the types of the tensors. Matrices "X[i]" are represented by the stack X.
TensorTypes types_of(const ImportedModel& imported) {
  TensorTypes types;
  std::map<std::string, int64_t> stacks;
  for (const auto& [name, tensor] : imported.tensors)
    if (const std::string stack = stack_of(name); !stack.empty()) stacks[stack] = 0;
  for (const auto& [name, tensor] : imported.tensors) {
    const size_t open = name.rfind('[');
    const auto stack = open == std::string::npos ? stacks.end() : stacks.find(name.substr(0, open));
    if (stack == stacks.end())
      types.emplace(name, type_of(tensor));
    else
      ++stack->second;
  }
  for (const auto& [stack, count] : stacks) {
    const TensorType first = type_of(imported.tensor(expert_name(stack, 0)));
    std::vector<int64_t> shape = first.shape.vector();
    shape.insert(shape.begin(), count);
    // Throws unless all matrices exist with the same type.
    for (int64_t e = 0; e < count; ++e) imported.tensor(expert_name(stack, e), first);
    types.emplace(stack, TensorType{first.dtype, Shape(shape)});
  }
  return types;
}

}  // namespace

HTensor expert_of(const HTensor& all, int64_t number) {
  const TensorType type{all.dtype(), all.shape().from(1)};
  const size_t bytes = type.bytes();
  auto* at = static_cast<std::byte*>(all.raw()->storage->data()) + static_cast<size_t>(number) * bytes;
  return make_value(type, std::make_shared<Storage>(at, bytes, all.raw()->storage, false));
}

std::vector<std::string> builtin_architectures() {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kBuiltinSpecCount; ++i)
    names.insert(names.end(), builtin(i).architectures.begin(), builtin(i).architectures.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool has_builtin_spec(const ModelMetadata& metadata) { return find_builtin(metadata) != nullptr; }

specs::Spec builtin_spec(const ModelMetadata& metadata, const std::string& model) {
  const std::string& architecture = metadata.text("general.architecture");
  if (const specs::Spec* spec = find_builtin(metadata)) return *spec;
  throw Error(ErrorKind::Weights,
              fmt::format("'{}' is a model of the architecture '{}', which is not known", model, architecture), {},
              {"known architectures: " + comma_separated(builtin_architectures()),
               "a spec of your own describes another one: --spec FILE"});
}

std::shared_ptr<ResolvedSpec> resolve_spec(const ImportedModel& imported, const ModelOptions& options) {
  const auto description = options.spec ? nullptr : description_of(imported, options.set);
  const specs::Spec spec = options.spec  ? *options.spec
                           : description ? description->spec
                                         : builtin_spec(imported.metadata, imported.path);
  const SpecOverrides set = description ? SpecOverrides{} : options.set;  // already applied to a description
  TensorTypes types;
  if (!imported.tensors.empty())
    types = types_of(imported);
  else if (description)
    for (const NdslTensor& tensor : description->tensors) types[tensor.name] = {DType::F32, tensor.shape};
  else
    types = planned_tensors(spec, imported.metadata, set, imported.path);
  try {
    auto resolved = std::make_shared<ResolvedSpec>(spec, imported.metadata, std::move(types), set, imported.path);
    resolved->set_length(options.length);
    resolved->check_entries(options.cache);
    resolved->name_modules(description ? modules_of(*description) : modules_of_folder(*resolved, imported.metadata));
    return resolved;
  } catch (Error& e) {
    for (const auto& [name, origin] : imported.origins) {
      const std::string stack = stack_of(name), shown = stack.empty() ? name : stack;
      if (std::string_view(e.what()).find("'" + shown + "'") != std::string_view::npos)
        e.note(fmt::format("'{}' is '{}' in its file", name, origin));
    }
    throw;
  }
}

void each_weight(const ImportedModel& imported, const ResolvedSpec& resolved,
                 const std::function<void(const std::string& parameter, const HTensor& elements)>& body) {
  std::set<std::string> seen;
  for (const auto& [key, weight] : resolved.weights()) {
    if (weight.parameter.empty()) continue;
    if (weight.experts == 0 && seen.insert(weight.parameter).second)
      body(weight.parameter, imported.tensor(weight.source));
    for (int64_t e = 0; e < weight.experts; ++e) {
      const std::string name = expert_name(weight.parameter, e);
      if (!seen.insert(name).second) continue;
      const HTensor* alone = imported.find(expert_name(weight.source, e));
      body(name, alone ? *alone : expert_of(imported.tensor(weight.source), e));
    }
  }
}

Model model_of(const ImportedModel& imported, const ModelOptions& options) {
  std::shared_ptr<ResolvedSpec> resolved = resolve_spec(imported, options);
  Model model;
  model.name = imported.path;
  model.metadata = imported.metadata;
  each_weight(imported, *resolved, [&](const std::string& name, const HTensor& tensor) {
    model.parameters
        ->adopt(name, options.weights ? as(*options.weights, tensor) : tensor, imported.file, Role::frozen, {})
        .fixed = true;
  });
  std::vector<Adapter> adapters;
  for (const AdapterFile& file : options.adapters)
    adapters.push_back(read_adapter(file, *resolved, Registry::global()));
  apply_adapters(adapters, *resolved, *model.parameters);
  if (options.lora) add_adapters(*options.lora, *resolved, model);
  ResolvedSpec::add_entries(std::move(resolved), model, options.cache);
  return model;
}

void add_architecture_entries(Model& model, DType cache, const std::optional<LoraSettings>& lora) {
  TensorTypes types;
  for (const auto& [name, tensor] : model.parameters->all()) types.emplace(name, tensor.type);
  auto resolved = std::make_shared<ResolvedSpec>(builtin_spec(model.metadata, model.name), model.metadata,
                                                 std::move(types), SpecOverrides{}, model.name);
  resolved->check_entries(cache);
  if (lora) add_adapters(*lora, *resolved, model);
  ResolvedSpec::add_entries(std::move(resolved), model, cache);
}

}  // namespace harmonics::engine
