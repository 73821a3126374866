// CycleReload: replaces plugins and arguments of functions of a running cycle between two steps. The new build of a
// changed plugin file is loaded beside the old one.
#pragma once

#include <string>

#include "engine/cycle/cycle_observer.hpp"
#include "engine/cycle/cycle_readers.hpp"
#include "engine/cycle/finite_weights.hpp"

namespace harmonics::engine {

class CycleReload final : public CycleObserver {
 public:
  CycleReload(CycleContext& cycle, CycleReaders& readers, FiniteWeights& weights)
      : cycle_(cycle), readers_(readers), weights_(weights) {}

  // Switches to `graph`, the same flow with other arguments; `what` describes them in the event, or in a note if the
  // run has no control. Throws errors of shapes and compilation, also if the graph needs other weights, and then
  // changes nothing. The caller holds the boundary, and all weights belong to one step.
  void configure(Graph graph, const std::string& what);
  // Reloads if requested since the last step.
  void step_began() override;

 private:
  void reload_changed();
  void reload(const std::string& path);
  void recompile();

  CycleContext& cycle_;
  CycleReaders& readers_;
  FiniteWeights& weights_;
};

}  // namespace harmonics::engine
