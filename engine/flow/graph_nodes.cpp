// Queries of the nodes, arrows and cycles of a graph.
#include <algorithm>

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

int Graph::find(std::string_view name) const {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].name == name) return static_cast<int>(i);
  return -1;
}

namespace {
bool in_cycle(int where, int cycle) { return where < 0 || where == cycle; }
}  // namespace

bool Graph::trains(int cycle) const {
  return std::any_of(taps.begin(), taps.end(), [&](const GraphTap& t) { return in_cycle(t.cycle, cycle); });
}

std::vector<int> Graph::nodes_of(DeclarationKind kind) const {
  std::vector<int> result;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].kind == kind) result.push_back(static_cast<int>(i));
  return result;
}

std::vector<std::vector<size_t>> Graph::arrows_into() const {
  std::vector<std::vector<size_t>> into(nodes.size());
  for (size_t i = 0; i < edges.size(); ++i) into[static_cast<size_t>(edges[i].target)].push_back(i);
  return into;
}

std::vector<int> Graph::order() const {
  std::vector<int> pending(nodes.size(), 0), result;
  std::set<int> ready;
  std::vector<std::vector<int>> out(nodes.size());
  const auto link = [&](int from, int to) {
    out[static_cast<size_t>(from)].push_back(to);
    ++pending[static_cast<size_t>(to)];
  };
  for (const GraphEdge& e : edges) {
    link(e.source, e.target);
    for (const BoundCall& c : e.calls)
      for (const auto& [argument, layer] : c.layers) link(layer, e.target);
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (pending[i] == 0) ready.insert(static_cast<int>(i));
  while (!ready.empty()) {
    const int n = *ready.begin();
    ready.erase(ready.begin());
    result.push_back(n);
    for (int to : out[static_cast<size_t>(n)])
      if (--pending[static_cast<size_t>(to)] == 0) ready.insert(to);
  }
  return result;
}

std::vector<int> Graph::terminal_layers(int cycle) const {
  std::set<int> driven, left;
  for (const GraphEdge& e : edges) {
    if (!in_cycle(e.cycle, cycle)) continue;
    driven.insert(e.target);
    left.insert(e.source);
    for (const BoundCall& c : e.calls)
      for (const auto& [argument, layer] : c.layers) left.insert(layer);
  }
  std::vector<int> result;
  for (int n : driven)
    if (nodes[static_cast<size_t>(n)].kind == DeclarationKind::Layer && !left.count(n)) result.push_back(n);
  return result;
}

std::set<int> Graph::branches(int cycle, bool hold) const {
  std::set<int> result;
  for (size_t i = 0; i < conditionals.size(); ++i)
    if (conditionals[i].cycle == cycle) result.insert(static_cast<int>(2 * i) + (hold ? 0 : 1));
  return result;
}

std::vector<int> Graph::producers_used(int cycle, bool with_taps) const {
  std::set<int> used;
  const auto add = [&](int n) {
    if (nodes[static_cast<size_t>(n)].kind == DeclarationKind::Producer) used.insert(n);
  };
  for (const GraphEdge& e : edges) {
    if (!in_cycle(e.cycle, cycle)) continue;
    add(e.source);
    for (const BoundCall& c : e.calls)
      for (const auto& [argument, layer] : c.layers) add(layer);
  }
  if (with_taps)
    for (const GraphTap& t : taps) {
      if (!in_cycle(t.cycle, cycle)) continue;
      add(t.target);
      for (const BoundCall& c : t.losses)
        for (const auto& [argument, layer] : c.layers) add(layer);
    }
  return {used.begin(), used.end()};
}

}  // namespace harmonics::engine
