#include "engine/transformer/trained_weights.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/transformer/adapter_names.hpp"
#include "engine/transformer/architectures.hpp"

namespace harmonics::engine {

namespace {

// Returns the prefixes of tensor names that end with the name of a parameter.
std::set<std::string> prefixes_in(const TensorFile& trained, const std::map<std::string, TensorType>& parameters) {
  std::set<std::string> found;
  for (const auto& [name, tensor] : trained.tensors) {
    if (parameters.count(name)) found.insert("");
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      if (parameters.count(name.substr(dot + 1))) found.insert(name.substr(0, dot + 1));
  }
  return found;
}

std::string prefix_in(const TensorFile& trained, const std::map<std::string, TensorType>& parameters,
                      const std::string& file, const std::string& model) {
  const std::set<std::string> found = prefixes_in(trained, parameters);
  if (found.size() == 1) return *found.begin();
  const auto is_of_adapter = [](const auto& entry) { return entry.first.ends_with(".lora_A"); };
  if (found.empty())
    throw Error(
        ErrorKind::Weights,
        fmt::format("none of the {} tensors of '{}' belongs to the model '{}'", trained.tensors.size(), file, model),
        {},
        {std::any_of(trained.tensors.begin(), trained.tensors.end(), is_of_adapter)
             ? std::string("they are of an adapter: --lora takes its folder, output_dir/adapter of 'train' or "
                           "--save-adapter of 'run'")
             : fmt::format("tensors of the model end in names such as '{}'", parameters.begin()->first)});
  throw Error(
      ErrorKind::Weights,
      fmt::format("'{}' has weights of several models: {}", file, comma_separated({found.begin(), found.end()})), {},
      {"give one name= to the uses of one model, and save each model in a separate file"});
}

[[noreturn]] void refuse_missing(const std::string& file, const std::string& model, std::vector<std::string> missing) {
  constexpr size_t kListed = 8;
  const size_t more = missing.size() > kListed ? missing.size() - kListed : 0;
  missing.resize(missing.size() - more);
  throw Error(ErrorKind::Weights, fmt::format("'{}' lacks tensors of the model '{}'", file, model), {},
              {"missing: " + comma_separated(missing) + (more ? fmt::format(" and {} more", more) : "")});
}

// Stacks matrices, as files store the experts of a layer.
HTensor stacked(const std::vector<HTensor>& matrices) {
  TensorType type = type_of(matrices.front());
  std::vector<int64_t> shape = type.shape.vector();
  shape.insert(shape.begin(), static_cast<int64_t>(matrices.size()));
  const size_t bytes = type.bytes();
  const auto storage = std::make_shared<Storage>(bytes * matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i)
    std::memcpy(static_cast<std::byte*>(storage->data()) + i * bytes, matrices[i].bytes(), bytes);
  return make_value({type.dtype, Shape(shape)}, storage);
}

// Returns the matrices of a stack.
std::vector<HTensor> unstacked(const HTensor& stack) {
  const TensorType type{stack.dtype(), stack.shape().from(1)};
  const size_t bytes = type.bytes();
  std::vector<HTensor> matrices;
  for (int64_t i = 0; i < stack.shape()[0]; ++i)
    matrices.emplace_back(type.dtype, type.shape,
                          static_cast<const std::byte*>(stack.bytes()) + static_cast<size_t>(i) * bytes);
  return matrices;
}

// Reorders rows from rotary pairs (i, i + width / 2) of each head to adjacent ones.
HTensor with_adjacent_pairs(const HTensor& matrix, int64_t width) {
  const TensorType type = type_of(matrix);
  const int64_t rows = type.shape[0], half = width / 2;
  const size_t bytes = type.bytes() / static_cast<size_t>(rows);
  const auto storage = std::make_shared<Storage>(type.bytes());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % width, from = row - in_head + in_head % 2 * half + in_head / 2;
    std::memcpy(static_cast<std::byte*>(storage->data()) + static_cast<size_t>(row) * bytes,
                static_cast<const std::byte*>(matrix.bytes()) + static_cast<size_t>(from) * bytes, bytes);
  }
  return make_value(type, storage);
}

std::map<std::string, TensorType> parameters_of(const CompiledNdsl& compiled) {
  std::map<std::string, TensorType> parameters;
  for (const NdslTensor& tensor : compiled.tensors) {
    if (tensor.experts == 0) parameters[tensor.name] = {DType::F32, tensor.shape};
    for (int64_t e = 0; e < tensor.experts; ++e)
      parameters[expert_name(tensor.name, e)] = {DType::F32, tensor.shape.from(1)};
  }
  return parameters;
}

}  // namespace

bool has_trained_tensors(const CompiledNdsl& compiled, const TensorFile& trained) {
  return !prefixes_in(trained, parameters_of(compiled)).empty();
}

std::map<std::string, HTensor> trained_tensors(const CompiledNdsl& compiled, const TensorFile& trained,
                                               const std::string& name) {
  const auto parameters = parameters_of(compiled);
  const std::string prefix = prefix_in(trained, parameters, name, compiled.file.path);
  std::map<std::string, HTensor> given = trained.tensors, tensors;
  for (const NdslTensor& tensor : compiled.tensors) {  // experts in one tensor, as `explain` shows them
    const auto at = tensor.experts == 0 ? given.end() : given.find(prefix + tensor.name);
    if (at == given.end() || at->second.shape() != tensor.shape) continue;
    const std::vector<HTensor> matrices = unstacked(at->second);
    for (size_t e = 0; e < matrices.size(); ++e)
      given.emplace(prefix + expert_name(tensor.name, static_cast<int64_t>(e)), matrices[e]);
  }
  std::vector<std::string> missing;
  for (const auto& [parameter, type] : parameters) {
    const auto at = given.find(prefix + parameter);
    if (at == given.end()) {
      missing.push_back(parameter);
      continue;
    }
    if (at->second.shape() != type.shape)
      throw Error(ErrorKind::Weights, fmt::format("'{}': '{}' is {}, and the model's is {}", name, at->first,
                                                  type_of(at->second).str(), type.str()));
    tensors[parameter] = at->second;
  }
  if (!missing.empty()) refuse_missing(name, compiled.file.path, std::move(missing));
  return tensors;
}

std::map<std::string, HTensor> trained_tensors(const ImportedModel& imported, const ResolvedSpec& resolved,
                                               const ResolvedSpec& learner, const TensorFile& trained,
                                               const std::string& name) {
  std::map<std::string, TensorType> parameters;
  each_weight(imported, resolved,
              [&](const std::string& parameter, const HTensor& tensor) { parameters[parameter] = type_of(tensor); });
  const std::string prefix = prefix_in(trained, parameters, name, imported.path);
  const auto learned = [&](const std::string& parameter) -> const HTensor* {
    const auto at = trained.tensors.find(prefix + parameter);
    if (at == trained.tensors.end()) return nullptr;
    if (const TensorType& wanted = parameters.at(parameter); at->second.shape() != wanted.shape)
      throw Error(ErrorKind::Weights, fmt::format("'{}': '{}' is {}, and the model's is {}", name, at->first,
                                                  type_of(at->second).str(), wanted.str()));
    return &at->second;
  };
  std::map<std::string, HTensor> tensors = imported.tensors;
  for (const auto& [key, weight] : resolved.weights()) {
    if (weight.parameter.empty()) continue;
    if (weight.experts == 0) {
      const HTensor* now = learned(weight.parameter);
      if (!now) continue;
      const int64_t width = width_of_adjacent_pairs(resolved, key);
      const bool apart = width > 0 && width_of_adjacent_pairs(learner, key) == 0;
      tensors[weight.source] = apart ? with_adjacent_pairs(*now, width) : *now;
      continue;
    }
    std::vector<HTensor> all;
    std::vector<std::string> missing;
    for (int64_t e = 0; e < weight.experts; ++e) {
      const std::string alone = expert_name(weight.source, e);
      const HTensor* now = learned(expert_name(weight.parameter, e));
      if (!now && !tensors.count(alone)) missing.push_back(expert_name(weight.parameter, e));
      if (!now) continue;
      if (tensors.count(alone))
        tensors[alone] = *now;
      else
        all.push_back(*now);
    }
    if (!all.empty() && !missing.empty()) refuse_missing(name, imported.path, std::move(missing));
    if (all.size() == static_cast<size_t>(weight.experts)) tensors[weight.source] = stacked(all);
  }
  return tensors;
}

}  // namespace harmonics::engine
