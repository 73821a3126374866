// Binds a call written in a tag to a registered function with checked arguments.
#pragma once

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

class CallBinder {
 public:
  explicit CallBinder(Registry& registry) : registry_(registry) {}
  BoundCall function(const Call& call, const Graph& graph);  // activation, layer or functional
  BoundCall predicate(const Call& call, const Graph& graph);
  BoundCall loss(const Call& call, const Graph& graph);
  // Looks up a function by name alone; throws ErrorKind::Name with the nearest name.
  ItemPtr find_function(const Name& name) const;
  ItemPtr find_loss(const Name& name) const;

 private:
  BoundCall bind(const Call& call, const Graph& graph, ItemPtr item);
  Registry& registry_;
};

// Checks that `comparison` names a metric this graph can have: loss, LAYER.loss, LAYER.accuracy, FIGURE, LAYER.FIGURE
// (of a metric in the registry), or one of these after "val.". Which of them a run measures depends on its settings.
void check_metric(const Comparison& comparison, const Graph& graph, Registry& registry);

}  // namespace harmonics::engine
