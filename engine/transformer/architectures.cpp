#include "engine/transformer/architectures.hpp"

#include <string_view>

#include <fmt/core.h>

#include "engine/transformer/llama.hpp"

namespace harmonics::engine {

namespace {

struct Architecture {
  std::string_view name;
  void (*add_entries)(Model& model);
};

constexpr Architecture kArchitectures[] = {
    {"llama", add_llama_entries},
};

}  // namespace

Model model_of(const ImportedModel& imported) {
  const std::string wanted = imported.architecture();
  std::vector<std::string> known;
  for (const Architecture& a : kArchitectures) {
    known.emplace_back(a.name);
    if (a.name != wanted) continue;
    Model model;
    model.name = imported.path;
    model.metadata = imported.metadata;
    for (const auto& [name, tensor] : imported.tensors)
      model.parameters->adopt(name, tensor, imported.file, Role::frozen, {}).fixed = true;
    a.add_entries(model);
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
