// Reloads plugins whose files change while a cycle runs: the new build is loaded beside the old one and replaces it
// between two steps.
#include <fmt/core.h>

#include "engine/cycle/cycle_run.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {

void CycleRun::reload_plugins() {
  const std::vector<std::string> changed = plan_.graph.registry().changed_libraries();
  if (changed.empty()) note("no plugin has changed");
  for (const std::string& path : changed) reload(path);
}

void CycleRun::reload(const std::string& path) {
  bool renewed = false;
  std::string why;
  try {
    const std::vector<std::shared_ptr<Item>> items = load_beside(path);
    BoundGraph::Replaced replaced = plan_.graph.replace_functions(items);
    if (replaced.concerns_programs()) {
      renewed = true;
      programs_.renew(record_.counts());
      watch_.renew();
    }
    replaced.keep();
    if (renewed) keep_snapshots();
    return note(fmt::format("plugin '{}' was reloaded after step {}{}", path, record_.step(),
                            replaced.concerns_programs() ? "" : "; no function of this graph is of it"));
  } catch (const Error& e) {
    why = e.what();
    for (const std::string& text : e.notes()) why += "; " + text;
  }
  // The graph has its previous functions again.
  if (renewed) {
    programs_.renew(record_.counts());
    watch_.renew();
  }
  note(fmt::format("plugin '{}' stays as it was: {}", path, why));
}

}  // namespace harmonics::engine
