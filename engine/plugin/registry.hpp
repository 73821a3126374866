// The registry: every named item of every kind, its origin, and the library that provides it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <harmonics/function.hpp>

// Evaluates to true if the table has the function. Tables of older versions are shorter, and functions may be null.
#define HM_TABLE_HAS(table, member) \
  ((table).struct_size >= offsetof(std::decay_t<decltype(table)>, member) + sizeof((table).member) && (table).member)

namespace harmonics::engine {

class Library;  // an opened plugin; see loader.hpp

struct ArgumentSpec {
  uint32_t type = 0;  // hx_argument_type
  std::string name, default_text, description;
  bool required = false;
  std::string range = {};  // hx_argument_spec.range; "": any value
};

// A registered item. Ownership is shared: a replaced item lives until its last user releases it.
class Item {
 public:
  Item() = default;
  Item(const Item&) = delete;
  Item& operator=(const Item&) = delete;
  ~Item();  // calls the table's destroy

  uint32_t kind = 0, flags = 0;  // hx_kind, hx_item_flags
  std::string name, description;
  std::string plugin;  // id of its plugin; "": built in
  std::string path;    // path of that plugin's file
  std::vector<ArgumentSpec> arguments;
  // Minor version of contract 1 that its library is built for; for built-in items the current one.
  uint16_t contract_minor = HX_ABI_MINOR;
  uint64_t order = 0;  // increases with each registration; 0: from a library announced by its manifest
  void* self = nullptr;
  const void* vtable = nullptr;
  std::shared_ptr<Library> library;
  std::shared_ptr<const Item> inner = {};  // of a device "trace:cpu": the device that it forwards calls to

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
uint32_t kind_named(std::string_view name);   // 0: unknown; accepts plurals
// Returns the help line of errors about an unknown item: how to load a plugin that `does` ("reads", "provides") it, and
// the command that lists the known items of the kind.
std::string plugin_help(uint32_t kind, std::string_view does = "provides");
std::vector<uint32_t> item_kinds();  // all kinds that can be registered, in the order of lists
// Returns the name of a required function that the table lacks, or "".
std::string missing_function(uint32_t kind, const void* vtable);
class Registry {
 public:
  // A registry that falls back to `outer` for names it lacks (a graph's registry over the global one).
  explicit Registry(Registry* outer = nullptr) : outer_(outer) {}
  static Registry& global();  // built-in items and those announced by manifests on the search path

  void add(std::shared_ptr<Item> item);  // a later item of the same kind and name replaces it
  // Finds an item, opening the library that announced it if needed. Returns null for an unknown name. For a device
  // "NAME:OTHER", device NAME creates a wrapper that forwards calls to OTHER. Throws ErrorKind::Device if NAME cannot
  // wrap devices, or OTHER has its own memory.
  ItemPtr find(uint32_t kind, std::string_view name);
  // Like find, but throws ErrorKind::Name for an unknown name, with the nearest name and advice (--plugin,
  // `harmonics list`).
  ItemPtr need(uint32_t kind, std::string_view name);
  // Returns all names of a kind, loaded or announced by a manifest, sorted.
  std::vector<std::string> names(uint32_t kind);
  void load_everything();  // opens all announced libraries (for `list`)

  // Returns the implementations of a functional or primitive: those of this registry before those of `outer`, each
  // newest first.
  std::vector<ItemPtr> implementations(const std::string& functional);
  // Returns the selected implementation of each functional, which compilation uses. Entries of this registry hide those
  // of `outer`.
  std::map<std::string, std::string> overrides();
  // Selects an implementation; "" removes the selection. Returns the previous one, or "".
  std::string set_override(const std::string& functional, const std::string& implementation);

  // Returns the paths of libraries whose file changed since it was opened. Deleted files are not included.
  std::vector<std::string> changed_libraries();
  // Replaces items of a library by those of a new build with the same kind and name, and adds new names. Returns pairs
  // of the new and the previous item (null: none) for put_back.
  std::vector<std::pair<ItemPtr, ItemPtr>> replace(const std::vector<std::shared_ptr<Item>>& items);
  void put_back(const std::vector<std::pair<ItemPtr, ItemPtr>>& replaced);

  // Announces that the library provides these items, without opening it. The first library that announces a name wins.
  void announce(const std::string& library_path, const std::vector<std::pair<uint32_t, std::string>>& names);
  // Records an unusable library, for messages about unknown names.
  void pass_over(std::string reason);
  std::vector<std::string> passed_over();
  // Returns a line for each library that replaces an item of another library with the same name, either by registration
  // or by its position on the search path. Each line is returned once.
  std::vector<std::string> take_replacements();
  // Sets the registry to fall back to.
  void set_outer(Registry* outer) { outer_ = outer; }
  // Removes all items. Current users keep them.
  void clear();
  // Adds an item of a library that was opened because of its manifest. Replaces neither items added since then nor
  // names that another library announced.
  void add_announced(std::shared_ptr<Item> item);

 private:
  using Key = std::pair<uint32_t, std::string>;
  bool knows(uint32_t kind, const std::string& name);
  void open_announced(const std::string& path);
  ItemPtr wrapped_device(std::string_view name);
  void note_replaced(const Item& item, const std::string& former);

  Registry* outer_;
  std::recursive_mutex mutex_;  // recursive: lookups happen while a library registers items
  std::map<Key, ItemPtr> items_;
  std::map<Key, std::string> announced_;
  std::set<std::string> opened_;  // announced libraries that are open
  std::map<std::string, std::string> overrides_;
  std::vector<std::string> passed_over_;
  std::map<Key, std::string> hidden_;                // libraries whose announcement of a name lost to an earlier one
  std::map<std::string, std::string> replacements_;  // by path of the replacing library
};

// Callbacks for the library's own items. They belong to folders that depend on this one, so engine/library sets this
// table before main() begins.
struct LibraryItems {
  void (*add)(Registry& registry);  // the built-in streams and functions, called once by Registry::global()
  // Returns true for names of built-in functions, functionals, optimizers, schedules and augmentations, which plugins
  // cannot register.
  bool (*reserves)(uint32_t kind, const std::string& name);
};
void set_library_items(const LibraryItems& items);
const LibraryItems& library_items();  // throws std::logic_error if not set

}  // namespace harmonics::engine

// The object that hx_api.register_item receives. Items stay pending until harmonics_register returns without error.
struct hx_registry {
  std::vector<std::shared_ptr<harmonics::engine::Item>> pending;
  std::function<void(std::shared_ptr<harmonics::engine::Item>)> take;  // if set, receives items immediately instead
  std::string plugin, path;
  std::shared_ptr<harmonics::engine::Library> library;
  uint16_t contract_minor = HX_ABI_MINOR;
};
