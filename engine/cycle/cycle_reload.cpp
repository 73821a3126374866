#include "engine/cycle/cycle_reload.hpp"

#include <fmt/core.h>

#include "engine/bound/same_weights.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {

void CycleReload::step_began() {
  if (!cycle_.hooks.reload.exchange(false, std::memory_order_relaxed)) return;
  reload_changed();
  weights_.keep();
}

void CycleReload::reload_changed() {
  const std::vector<std::string> changed = cycle_.plan.graph.registry().changed_libraries();
  if (changed.empty()) cycle_.note("no plugin has changed");
  for (const std::string& path : changed) reload(path);
}

void CycleReload::configure(Graph graph, const std::string& what) {
  graph.weights_folders = cycle_.plan.graph.graph().weights_folders;
  expect_same_weights(cycle_.plan.graph, graph, cycle_.plan.run);
  Graph former = cycle_.plan.graph.exchange(std::move(graph));
  try {
    recompile();
  } catch (...) {
    cycle_.plan.graph.exchange(std::move(former));
    recompile();
    throw;
  }
  readers_.renew();
  if (cycle_.plan.training) weights_.keep();
  if (cycle_.hooks.control) return cycle_.event("layer", what);
  cycle_.note(fmt::format("{} after step {}", what, cycle_.record.step()));
}

void CycleReload::recompile() {
  cycle_.programs.renew(cycle_.record.counts());
  cycle_.watch.renew();
}

void CycleReload::reload(const std::string& path) {
  bool renewed = false;
  std::string why;
  try {
    const std::vector<std::shared_ptr<Item>> items = load_beside(path);
    BoundGraph::Replaced replaced = cycle_.plan.graph.replace_functions(items);
    if (replaced.concerns_programs()) {
      renewed = true;
      recompile();
    }
    replaced.keep();
    if (renewed) readers_.offer();
    return cycle_.note(fmt::format("plugin '{}' was reloaded after step {}{}", path, cycle_.record.step(),
                                   renewed ? "" : "; this graph uses no function of it"));
  } catch (const Error& e) {
    why = e.what();
    for (const std::string& text : e.notes()) why += "; " + text;
  } catch (const std::exception& e) {  // of the file system or of memory: the run goes on, too
    why = e.what();
  }
  if (renewed) recompile();  // restores the programs; the graph has its previous functions again
  cycle_.note(fmt::format("plugin '{}' is unchanged: {}", path, why));
}

}  // namespace harmonics::engine
