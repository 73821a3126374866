#include "engine/embed/name_scope.hpp"

#include <algorithm>

namespace harmonics {

NameScope::NameScope() : names_(&Registry::global()) {
  given_.take = [this](std::shared_ptr<Item> item) { take(std::move(item)); };
}

void NameScope::take(std::shared_ptr<Item> item) {
  ++version_;
  if (item->kind != HX_FUNCTIONAL) return names_.add(std::move(item));
  Registry& everywhere = Registry::global();
  const ItemPtr before = everywhere.find(HX_FUNCTIONAL, item->name);
  functionals_.emplace_back(item, before);
  everywhere.add(std::move(item));
}

void NameScope::close() {
  ++version_;
  names_.clear();
  // The last first: of two with one name it gives back what the first had put there.
  for (auto at = functionals_.rbegin(); at != functionals_.rend(); ++at) Registry::global().put_back({*at});
  functionals_.clear();
}

NameScopes& thread_scopes() {
  thread_local NameScopes scopes;
  return scopes;
}

bool NameChain::relink() {
  const NameScopes& of_thread = thread_scopes();
  const size_t count = of_thread.size() + of_graph.size();
  const auto scope = [&](size_t i) -> const std::shared_ptr<NameScope>& {
    return i < of_thread.size() ? of_thread[i] : of_graph[i - of_thread.size()];
  };
  bool same = count == linked_.size();
  for (size_t i = 0; same && i < count; ++i) same = scope(i) == linked_[i] && scope(i)->version() == versions_[i];
  if (same) return false;
  NameScopes now;
  versions_.clear();
  Registry* below = &Registry::global();
  for (size_t i = 0; i < count; ++i) {
    if (i == of_thread.size()) own_.set_outer(below), below = &own_;
    scope(i)->names().set_outer(below);
    below = &scope(i)->names();
    now.push_back(scope(i));
    versions_.push_back(scope(i)->version());
  }
  if (of_graph.empty()) own_.set_outer(below);
  linked_ = std::move(now);
  return true;
}

}  // namespace harmonics
