// LastGood: a copy of the state of a training cycle from a time when all numbers were finite. A step that produces
// non-finite numbers is undone with it.
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
  // Tensors of `store` that are not finite at this time are not checked later.
  explicit LastGood(const ParameterStore& store);

  // Returns the name of the first tensor that has become infinite or NaN, or "".
  std::string first_non_finite(const ParameterStore& store) const;
  // Returns the tensors that were not finite at construction.
  const std::set<std::string>& never_finite() const { return never_finite_; }

  // Returns whether a newer copy is due. For weights of any size, copying takes a small share of the time.
  bool due(double now) const { return now >= next_; }
  // Copies the state into the memory of the previous copy. All numbers must be finite.
  void keep(const BoundGraph& graph, RunState state, double now);
  // Returns the copy as a checkpoint.
  const Checkpoint& kept() const { return kept_; }
  // Copies the tensors of the copy into `file` and returns its state, as the content of a checkpoint.
  RunState copy_to(TensorFile& file) const;
  // Restores the copy into the graph and zeroes moments declared since.
  void put_back(BoundGraph& graph) const;

 private:
  std::set<std::string> never_finite_;
  Checkpoint kept_;
  double next_ = 0;
};

}  // namespace harmonics::engine
