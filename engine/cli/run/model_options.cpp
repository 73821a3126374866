#include "engine/cli/run/model_options.hpp"

#include <fmt/core.h>

#include "dsl/spec/reader.hpp"

namespace harmonics::engine::cli {

ModelOptions model_options(const Options& options) {
  ModelOptions result;
  result.weights = options.weight_type;
  result.cache = options.cache_type;
  if (!options.spec.empty()) result.spec = specs::read_spec(options.spec);
  for (const std::string& setting : options.set) {
    const size_t at = setting.find('=');
    if (at == 0 || at == std::string::npos || at + 1 == setting.size())
      throw Error(ErrorKind::Usage, fmt::format("--set {} is not NAME=VALUE", setting), {},
                  {"'harmonics explain MODEL' shows the variables of a model"});
    result.set[setting.substr(0, at)] = setting.substr(at + 1);
  }
  return result;
}

}  // namespace harmonics::engine::cli
