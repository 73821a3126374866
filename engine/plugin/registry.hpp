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
  void* self = nullptr;
  const void* vtable = nullptr;
  std::shared_ptr<Library> library;

  std::string identity() const { return plugin + "/" + name; }
  template <typename Table> const Table& table() const { return *static_cast<const Table*>(vtable); }
};
using ItemPtr = std::shared_ptr<const Item>;

std::vector<uint32_t> item_kinds();                // every hx_kind there is
std::string_view kind_name(uint32_t kind);         // "activation"
uint32_t kind_named(std::string_view name);        // 0: none; plural accepted

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

  // Announces that `path` provides these, without opening it. Of two libraries that announce a name the first has it.
  void announce(const std::string& library_path, const std::vector<std::pair<uint32_t, std::string>>& names);
  // An item of a library that was opened because of its manifest: it replaces nothing that was added since, nor what
  // another library has announced.
  void add_announced(std::shared_ptr<Item> item);

 private:
  using Key = std::pair<uint32_t, std::string>;
  bool knows(uint32_t kind, const std::string& name);
  void open_announced(const std::string& path);

  Registry* outer_;
  std::recursive_mutex mutex_;  // an item is looked for while a library registers others
  std::map<Key, ItemPtr> items_;
  std::map<Key, std::string> announced_;
  std::set<std::string> opened_;  // announced libraries that are open
};

}  // namespace harmonics

// What hx_api.register_item receives: items wait here until harmonics_register has returned without error.
struct hx_registry {
  std::vector<std::shared_ptr<harmonics::Item>> pending;
  std::string plugin, path;
  std::shared_ptr<harmonics::Library> library;
};
