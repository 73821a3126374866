// CallBinder: binds a call in a tag to a registered function and checks its arguments.
#pragma once

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

// Thrown instead of an error that may result from text that could not be read.
struct Doubt {};

class CallBinder {
 public:
  CallBinder(Registry& registry, const Unread& unread) : registry_(registry), unread_(unread) {}
  BoundCall function(const Call& call, const Graph& graph);  // an activation, a layer function or a functional
  BoundCall predicate(const Call& call, const Graph& graph);
  BoundCall loss(const Call& call, const Graph& graph);
  // Looks up a function by its name alone. Throws ErrorKind::Name with the nearest name if it is unknown.
  ItemPtr find_function(const Name& name) const;
  ItemPtr find_loss(const Name& name) const;

 private:
  BoundCall bind(const Call& call, const Graph& graph, ItemPtr item);
  int layer_named(const Graph& graph, const std::string& name, Span span) const;
  bool engine_argument(const CallArgument& a, const Item& item, const Graph& graph, BoundCall& bound) const;

  Registry& registry_;
  const Unread& unread_;
};

// Checks that `comparison` names a metric that this graph can have: loss, LAYER.loss, LAYER.accuracy, FIGURE,
// LAYER.FIGURE (of a metric in the registry), or one of these after "val." or "window."; or the gradient norm. The
// settings of a run decide which of them it measures.
void check_metric(const Comparison& comparison, const Graph& graph, Registry& registry);

}  // namespace harmonics::engine
