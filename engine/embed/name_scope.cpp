#include "engine/embed/name_scope.hpp"

#include <map>
#include <mutex>

namespace harmonics::engine {

namespace {

// Functionals of open scopes, which are registered in the global registry. Closing a scope restores the previous owner
// of each name; scopes may close in any order.
class LentNames {
 public:
  static LentNames& global() {
    static auto* const names = new LentNames;  // never destroyed, like the registry
    return *names;
  }
  void add(std::shared_ptr<Item> item) {
    const std::lock_guard lock(mutex_);
    before_[item] = Registry::global().find(HX_FUNCTIONAL, item->name);
    Registry::global().add(std::move(item));
  }
  void give_back(const ItemPtr& item) {
    const std::lock_guard lock(mutex_);
    const ItemPtr before = before_.extract(item).mapped();
    for (auto& [later, stood_before] : before_)
      if (stood_before == item) return void(stood_before = before);
    Registry::global().put_back({{item, before}});
  }

 private:
  std::mutex mutex_;
  std::map<ItemPtr, ItemPtr> before_;  // null if the name was unused
};

// Null if no scope is open. A raw pointer, because a thread-local object would be destroyed before a static scope
// closes.
thread_local NameScopes* of_thread = nullptr;

}  // namespace

NameScope::NameScope() : names_(&Registry::global()) {
  given_.take = [this](std::shared_ptr<Item> item) { take(std::move(item)); };
}

void NameScope::take(std::shared_ptr<Item> item) {
  ++version_;
  if (item->kind != HX_FUNCTIONAL) return names_.add(std::move(item));
  functionals_.push_back(item);
  LentNames::global().add(std::move(item));
}

void NameScope::close() {
  ++version_;
  names_.clear();
  for (const ItemPtr& item : functionals_) LentNames::global().give_back(item);
  functionals_.clear();
}

const NameScopes& thread_scopes() {
  static const NameScopes none;
  return of_thread ? *of_thread : none;
}

void open_on_thread(std::shared_ptr<NameScope> scope) {
  if (!of_thread) of_thread = new NameScopes;
  of_thread->push_back(std::move(scope));
}

void close_on_thread(const std::shared_ptr<NameScope>& scope) {
  if (!of_thread) return;
  std::erase(*of_thread, scope);
  if (!of_thread->empty()) return;
  delete of_thread;
  of_thread = nullptr;
}

bool NameChain::relink() {
  const NameScopes& outer = thread_scopes();
  const size_t count = outer.size() + of_graph.size();
  const auto scope = [&](size_t i) -> const std::shared_ptr<NameScope>& {
    return i < outer.size() ? outer[i] : of_graph[i - outer.size()];
  };
  bool same = count == linked_.size();
  for (size_t i = 0; same && i < count; ++i) same = scope(i) == linked_[i] && scope(i)->version() == versions_[i];
  if (same) return false;
  NameScopes now;
  versions_.clear();
  Registry* below = &Registry::global();
  for (size_t i = 0; i < count; ++i) {
    if (i == outer.size()) own_.set_outer(below), below = &own_;
    scope(i)->names().set_outer(below);
    below = &scope(i)->names();
    now.push_back(scope(i));
    versions_.push_back(scope(i)->version());
  }
  if (of_graph.empty()) own_.set_outer(below);
  linked_ = std::move(now);
  return true;
}

}  // namespace harmonics::engine
