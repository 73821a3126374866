#include "engine/transformer/architectures.hpp"

#include <string_view>

#include <fmt/core.h>

#include <harmonics/element_type.hpp>
#include <harmonics/ops.hpp>

#include "engine/transformer/llama.hpp"

namespace harmonics::engine {

namespace {

struct Architecture {
  std::string_view name;
  void (*add_entries)(Model& model, DType cache);
};

// The matrix as `dtype`, or as it is if its rows are not whole blocks.
HTensor as(DType dtype, const HTensor& tensor) {
  if (tensor.rank() != 2 || tensor.dtype() == dtype || tensor.shape().back() % element_type(dtype).block != 0)
    return tensor;
  return cast(cast(tensor, DType::F32), dtype);
}

constexpr Architecture kArchitectures[] = {
    {"llama", add_llama_entries},
};

}  // namespace

Model model_of(const ImportedModel& imported, const ModelOptions& options) {
  const std::string wanted = imported.architecture();
  std::vector<std::string> known;
  for (const Architecture& a : kArchitectures) {
    known.emplace_back(a.name);
    if (a.name != wanted) continue;
    Model model;
    model.name = imported.path;
    model.metadata = imported.metadata;
    for (const auto& [name, tensor] : imported.tensors)
      model.parameters
          ->adopt(name, options.weights ? as(*options.weights, tensor) : tensor, imported.file, Role::frozen, {})
          .fixed = true;
    a.add_entries(model, options.cache);
    return model;
  }
  Error error(ErrorKind::Weights,
              fmt::format("'{}' is a model of the architecture '{}', which is not known", imported.path, wanted));
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  error.note("known architectures: " + names);
  throw error;
}

}  // namespace harmonics::engine
