// LastGood: a recent copy of a training cycle from when every number was finite. A step that produces non-finite
// numbers is undone from it.
#pragma once

#include <set>
#include <string>

#include "engine/bound/bound_graph.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"

namespace harmonics::engine {

// Thrown when weights, moments or statistics are not finite after a step.
class NonFiniteWeights : public Error {
 public:
  explicit NonFiniteWeights(const std::string& tensor) : Error(ErrorKind::Diverged, "'" + tensor + "' is not finite") {}
};

bool is_finite(const StoredTensor& tensor);
// Sets all moments to zero.
void clear_moments(ParameterStore& store);

class LastGood {
 public:
  // Tensors of `store` that are not finite now are not checked later.
  explicit LastGood(const ParameterStore& store);

  // Returns the first tensor that has become infinite or NaN, or an empty string.
  std::string first_non_finite(const ParameterStore& store) const;
  // Tensors that were not finite from the beginning.
  const std::set<std::string>& never_finite() const { return never_finite_; }

  // Returns whether a newer copy is due. Copying takes a small share of the time for weights of any size.
  bool due(double now) const { return now >= next_; }
  // Makes a copy and reuses the memory of the previous one. Must be called only when all numbers are finite.
  void keep(const BoundGraph& graph, RunState state, double now);
  // The copy in the form of a checkpoint.
  const Checkpoint& kept() const { return kept_; }
  // Copies the copy, into memory of its own, as the content of a checkpoint.
  RunState copy_to(TensorFile& file) const;
  // Restores the copy into the graph and sets moments declared since to zero.
  void put_back(BoundGraph& graph) const;

 private:
  std::set<std::string> never_finite_;
  Checkpoint kept_;
  double next_ = 0;
};

}  // namespace harmonics::engine
