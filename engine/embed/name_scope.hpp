// Names that embedders register for a scope, which belongs to a thread or to one graph. Each scope is a registry
// layered over the outer ones.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

class NameScope {
 public:
  NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

  hx_registry* registry() { return &given_; }
  Registry& names() { return names_; }
  uint64_t version() const { return version_; }  // incremented by every registration
  // Removes the names of the scope; functionals get their previous meaning.
  void close();

 private:
  void take(std::shared_ptr<Item> item);

  hx_registry given_;
  Registry names_;
  std::vector<ItemPtr> functionals_;
  uint64_t version_ = 1;
};

using NameScopes = std::vector<std::shared_ptr<NameScope>>;  // the innermost scope is the last

// Returns the scopes of this thread. A scope closed by another thread remains in the list, but without names.
const NameScopes& thread_scopes();
void open_on_thread(std::shared_ptr<NameScope> scope);
void close_on_thread(const std::shared_ptr<NameScope>& scope);

// The lookup order of a graph, innermost first: its scopes, its own functions, the scopes of the calling thread, the
// global registry.
class NameChain {
 public:
  explicit NameChain(Registry& own) : own_(own) {}

  NameScopes of_graph;
  // Links the current scopes. Returns whether names have changed since the last call.
  bool relink();
  Registry& innermost() { return of_graph.empty() ? own_ : of_graph.back()->names(); }

 private:
  Registry& own_;
  NameScopes linked_;  // kept alive, because registries point to one another
  std::vector<uint64_t> versions_;
};

}  // namespace harmonics::engine

struct hx_graph;

struct hx_name_scope {
  hx_graph* graph;  // null if it belongs to a thread
  std::shared_ptr<harmonics::engine::NameScope> scope;
};
