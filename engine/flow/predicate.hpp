// Predicates of plugins: conditions that an `if` evaluates before every step.
#pragma once

#include <memory>
#include <vector>

#include "engine/flow/graph.hpp"
#include "engine/flow/metrics.hpp"

namespace harmonics::engine {

// Progress of a run.
struct RunCounts {
  int64_t step = 0, epoch = 0, samples = 0;
};

// The predicates of a graph's conditionals with their arguments. The host allocates nothing to evaluate one.
class Predicates {
 public:
  explicit Predicates(const std::vector<GraphConditional>& conditionals);
  // Rethrows an error of the predicate with its name.
  bool holds(size_t conditional, const RunCounts& counts, const Metrics& metrics) const;

 private:
  struct Bound {
    ItemPtr item;
    AttributeMap arguments;
    std::unique_ptr<AttributeView> view;
    Span span;
  };
  std::vector<std::unique_ptr<Bound>> bound_;  // by conditional; null: a comparison
};

}  // namespace harmonics::engine
