// Names that embedders register for a scope: of a thread or of one graph. Each scope is a registry over what lies below
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/plugin/registry.hpp"

namespace harmonics {

class NameScope {
 public:
  NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

  hx_registry* registry() { return &given_; }
  Registry& names() { return names_; }
  uint64_t version() const { return version_; }  // grows with every name
  // Its names are gone; functionals mean again what they meant before.
  void close();

 private:
  void take(std::shared_ptr<Item> item);

  hx_registry given_;
  Registry names_;
  std::vector<ItemPtr> functionals_;
  uint64_t version_ = 1;
};

using NameScopes = std::vector<std::shared_ptr<NameScope>>;  // the one opened last is the last

// Of this thread. One that another thread closes stays there without names.
const NameScopes& thread_scopes();
void open_on_thread(std::shared_ptr<NameScope> scope);
void close_on_thread(const std::shared_ptr<NameScope>& scope);

// Where a graph looks names up, innermost first: its scopes, its own functions, the scopes of the thread that calls it,
// the process.
class NameChain {
 public:
  explicit NameChain(Registry& own) : own_(own) {}

  NameScopes of_graph;
  // Links them as they are now. Has anything changed since the last call?
  bool relink();
  Registry& innermost() { return of_graph.empty() ? own_ : of_graph.back()->names(); }

 private:
  Registry& own_;
  NameScopes linked_;  // kept: registries point at one another
  std::vector<uint64_t> versions_;
};

}  // namespace harmonics

struct hx_graph;

struct hx_name_scope {
  hx_graph* graph;  // null: of a thread
  std::shared_ptr<harmonics::NameScope> scope;
};
