// The registry: every named thing of every kind, where it came from, and how to find the library that has it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/function.hpp>

namespace harmonics {

class Library;  // an opened plugin; see loader.hpp

struct ArgumentSpec {
  uint32_t type = 0;  // hx_argument_type
  std::string name, default_text, description;
  bool required = false;
  std::string range = {};  // hx_argument_spec.range; "": any value
};

// One registered thing. Shared by whoever uses it, so a replaced item lives on with its last user. Holds its library.
class Item {
 public:
  Item() = default;
  Item(const Item&) = delete;
  Item& operator=(const Item&) = delete;
  ~Item();  // calls the table's destroy

  uint32_t kind = 0, flags = 0;  // hx_kind, hx_item_flags
  std::string name, description;
  std::string plugin;  // id of the plugin it came from; "" for the library's own
  std::string path;    // of that plugin's file
  std::vector<ArgumentSpec> arguments;
  uint64_t order = 0;  // later registrations have larger ones; 0: of a library that was opened because of its manifest
  void* self = nullptr;
  const void* vtable = nullptr;
  std::shared_ptr<Library> library;

  std::string identity() const { return plugin + "/" + name; }
  std::string origin() const { return plugin.empty() ? "built in" : plugin; }
  template <typename Table>
  const Table& table() const {
    return *static_cast<const Table*>(vtable);
  }
};
using ItemPtr = std::shared_ptr<const Item>;

std::string_view kind_name(uint32_t kind);    // "activation"
std::string_view kind_plural(uint32_t kind);  // "activations"
uint32_t kind_named(std::string_view name);   // 0: none; plural accepted
std::vector<uint32_t> item_kinds();           // every kind that can be registered, in the order of lists
// What is wrong with a table of functions, when something it must have is missing; "": nothing.
std::string missing_function(uint32_t kind, const void* vtable);
// Is this the name of one of the library's own functionals, optimizers, schedules or augmentations, which no plugin may
// take? Defined in engine/streams/own_names.cpp.
bool is_own_name(uint32_t kind, const std::string& name);

class Registry {
 public:
  // A registry that falls back to `outer` for names it lacks (a graph's own over the global one).
  explicit Registry(Registry* outer = nullptr) : outer_(outer) {}
  static Registry& global();  // with the built-in streams; knows the search path's manifests

  void add(std::shared_ptr<Item> item);  // a later one of the same kind and name wins
  // Opens the library whose manifest names it when needed. Null: unknown.
  ItemPtr find(uint32_t kind, std::string_view name);
  // As find; unknown: ErrorKind::Name with the nearest known name and how to get it (--plugin, `harmonics list`).
  ItemPtr need(uint32_t kind, std::string_view name);
  // Every name of a kind, loaded or only announced by a manifest, sorted.
  std::vector<std::string> names(uint32_t kind);
  void load_everything();  // opens all announced libraries (for `list`)

  // Implementations of a functional or primitive: this registry's before the outer one's, of each the newest first.
  std::vector<ItemPtr> implementations(const std::string& functional);
  // Which implementation is to be taken, by functional; those of this registry hide the outer one's. Programs take them
  // over when they are compiled.
  std::map<std::string, std::string> overrides();
  // Gives what was set before: "" nothing; setting "" takes it back.
  std::string set_override(const std::string& functional, const std::string& implementation);

  // The libraries whose file is another now than when it was opened, by path; those that are gone are not among them.
  std::vector<std::string> changed_libraries();
  // Items of a new build in place of those their library had registered under the same kind and name; new names are
  // added. Gives what stood there before (null: nothing), for put_back.
  std::vector<std::pair<ItemPtr, ItemPtr>> replace(const std::vector<std::shared_ptr<Item>>& items);
  void put_back(const std::vector<std::pair<ItemPtr, ItemPtr>>& replaced);

  // Announces that `path` provides these, without opening it. Of two libraries that announce a name the first has it.
  void announce(const std::string& library_path, const std::vector<std::pair<uint32_t, std::string>>& names);
  // A library that was found and cannot be used, for whoever misses a name.
  void pass_over(std::string reason);
  std::vector<std::string> passed_over();
  // Since the last call, a line for each library with something in place of what another has under the same name: what
  // it registered itself, or what was found first on the search path.
  std::vector<std::string> take_replacements();
  // What it falls back to from now on.
  void set_outer(Registry* outer) { outer_ = outer; }
  // Forgets what was added; who uses it keeps it.
  void clear();
  // An item of a library that was opened because of its manifest: it replaces nothing that was added since, nor what
  // another library has announced.
  void add_announced(std::shared_ptr<Item> item);

 private:
  using Key = std::pair<uint32_t, std::string>;
  bool knows(uint32_t kind, const std::string& name);
  void open_announced(const std::string& path);
  void note_replaced(const Item& item, const std::string& former);

  Registry* outer_;
  std::recursive_mutex mutex_;  // an item is looked for while a library registers others
  std::map<Key, ItemPtr> items_;
  std::map<Key, std::string> announced_;
  std::set<std::string> opened_;  // announced libraries that are open
  std::map<std::string, std::string> overrides_;
  std::vector<std::string> passed_over_;
  std::map<Key, std::string> hidden_;                // what a library announced that another had announced before
  std::map<std::string, std::string> replacements_;  // by path of the library that replaces
};

// While it lives, programs compiled for a graph whose functions come from `registry` compute a functional as it says,
// whichever thread compiles them; they keep to it afterwards.
class ScopedOverride {
 public:
  ScopedOverride(Registry& registry, std::string functional, const std::string& implementation)
      : registry_(registry),
        functional_(std::move(functional)),
        before_(registry.set_override(functional_, implementation)) {}
  ~ScopedOverride() { registry_.set_override(functional_, before_); }
  ScopedOverride(const ScopedOverride&) = delete;
  ScopedOverride& operator=(const ScopedOverride&) = delete;

 private:
  Registry& registry_;
  std::string functional_, before_;
};

}  // namespace harmonics

// What hx_api.register_item receives: items wait here until harmonics_register has returned without error.
struct hx_registry {
  std::vector<std::shared_ptr<harmonics::Item>> pending;
  std::function<void(std::shared_ptr<harmonics::Item>)> take;  // instead: at once
  std::string plugin, path;
  std::shared_ptr<harmonics::Library> library;
};
