// CycleReload: changes what computes the steps of a running cycle, between two of them: plugins whose files have
// changed, of which the new build is loaded beside the old one, and arguments of functions.
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

  // The same flow with other arguments; `what` says which, for the note. If its programs cannot be compiled, throws,
  // and nothing has changed. Boundary held, all weights of one step.
  void configure(Graph graph, const std::string& what);
  // Reloads if that was requested since the last step.
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
