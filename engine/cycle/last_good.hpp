// LastGood: what a training cycle was a moment ago, when every number in it was finite. A step that spoils them is
// undone from here.
#pragma once

#include <set>
#include <string>

#include "engine/bound/harmonic_graph.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"

namespace harmonics {

// Thrown where weights, moments or statistics turn out not to be finite after a step.
class SpoiltWeights : public Error {
 public:
  explicit SpoiltWeights(const std::string& tensor) : Error(ErrorKind::Diverged, "'" + tensor + "' is not finite") {}
};

bool is_finite(const StoredTensor& tensor);

class LastGood {
 public:
  // What is not finite in `store` now is not expected to become so.
  explicit LastGood(const ParameterStore& store);

  // The first tensor that has become infinite or NaN; empty: none has.
  std::string spoilt(const ParameterStore& store) const;
  // Those that were so from the beginning.
  const std::set<std::string>& never_finite() const { return never_finite_; }

  // Is it time for a newer copy? One takes a small share of the time, however large the weights are.
  bool due(double now) const { return now >= next_; }
  // To be called when nothing is spoilt. Memory of the former copy is used again.
  void keep(const HarmonicGraph& graph, RunState state, double now);
  // The copy, as a checkpoint has it.
  const Checkpoint& kept() const { return kept_; }
  // Into the graph, with every moment declared since at zero.
  void put_back(HarmonicGraph& graph) const;

 private:
  std::set<std::string> never_finite_;
  Checkpoint kept_;
  double next_ = 0;
};

}  // namespace harmonics
