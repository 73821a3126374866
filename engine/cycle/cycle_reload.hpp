// CycleReload: reloads plugins whose files change while a cycle runs: the new build is loaded beside the old one and
// replaces it between two steps.
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
