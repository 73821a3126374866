#include "engine/transformer/model_registry.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

ModelRegistry& ModelRegistry::global() {
  static ModelRegistry registry;
  return registry;
}

void ModelRegistry::add(const std::string& name, const std::string& file) {
  if (name.empty()) throw Error(ErrorKind::Usage, fmt::format("the model of '{}' needs a name", file));
  auto compiled = compile_ndsl_model(file);
  const std::lock_guard lock(mutex_);
  models_[name] = std::move(compiled);
  files_[name] = file;
}

std::string ModelRegistry::file_of(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = files_.find(name);
  return at == files_.end() ? "" : at->second;
}

std::shared_ptr<const CompiledNdsl> ModelRegistry::get(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = models_.find(name); at != models_.end()) return at->second;
  }
  if (!builtin_ndsl(name)) {
    const std::vector<std::string> known = names();
    const std::string meant = did_you_mean(name, known);
    throw Error(ErrorKind::Name, fmt::format("no model {} is registered", shown_name(name)), {},
                {meant.empty() ? "models: " + comma_separated(known) : meant});
  }
  auto compiled = compile_ndsl_model(name);
  const std::lock_guard lock(mutex_);
  return models_.emplace(name, std::move(compiled)).first->second;
}

std::vector<std::string> ModelRegistry::names() {
  std::vector<std::string> all = builtin_ndsl_models();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, model] : models_) all.push_back(name);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace harmonics::engine
