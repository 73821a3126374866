#include "engine/cli/run/open_model.hpp"

#include <fmt/core.h>

#include "engine/cli/run/model_options.hpp"

namespace harmonics::engine::cli {

OpenedModel open_model(const std::string& path, const Options& options) {
  OpenedModel opened{import_for(path, options), {}};
  opened.model = model_of(opened.imported, model_options(options));
  opened.model.limits = options.limits;
  return opened;
}

void expect_no_flow_flags(const Options& options) {
  const std::pair<const char*, bool> flags[] = {{"--weights", !options.weights.empty()},
                                                {"--weights-from", !options.weights_from.empty()},
                                                {"--graph", !options.graph.empty()},
                                                {"--untrained", options.untrained},
                                                {"--dot", options.dot}};
  for (const auto& [name, given] : flags)
    if (given)
      throw Error(ErrorKind::Usage, fmt::format("{} is for flows, and '{}' is a model with weights of its own", name,
                                                options.files.front()));
}

}  // namespace harmonics::engine::cli
