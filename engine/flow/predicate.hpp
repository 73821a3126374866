// Predicates: conditions defined by plugins, which an `if` evaluates before every step.
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

// The predicates of a graph's conditionals and their arguments. Evaluation does not allocate in the host.
class Predicates {
 public:
  explicit Predicates(const std::vector<GraphConditional>& conditionals);
  // Throws an error of the predicate together with its name.
  bool holds(size_t conditional, const RunCounts& counts, const Metrics& metrics) const;

 private:
  struct Bound {
    ItemPtr item;
    AttributeMap arguments;
    std::unique_ptr<AttributeView> view;
    Span span;
  };
  std::vector<std::unique_ptr<Bound>> bound_;  // by conditional; null for a comparison
};

}  // namespace harmonics::engine
