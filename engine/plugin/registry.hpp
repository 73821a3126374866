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

// Returns whether the table has the function. It may be shorter than this version's, or omit the function.
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

// A registered item. Shared ownership: a replaced item lives until its last user releases it. Keeps its library.
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
  // The minor version of contract 1 that its library is built for; of the program's own items the current one.
  uint16_t contract_minor = HX_ABI_MINOR;
  uint64_t order = 0;  // later registrations have larger ones; 0: from a library that its manifest announced
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
// The help line of errors about an unknown item: how to load a plugin that `does` ("reads") it, and the verb that lists
// the known items of the kind.
std::string plugin_help(uint32_t kind, std::string_view does = "provides");
std::vector<uint32_t> item_kinds();  // all kinds that can be registered, in the order of lists
// Names a missing required function of a table, or returns "".
std::string missing_function(uint32_t kind, const void* vtable);
class Registry {
 public:
  // A registry that falls back to `outer` for names it lacks (a graph's registry over the global one).
  explicit Registry(Registry* outer = nullptr) : outer_(outer) {}
  static Registry& global();  // with the built-in streams and the manifests of the search path

  void add(std::shared_ptr<Item> item);  // a later item of the same kind and name replaces it
  // Finds an item, and opens the library that announced it if needed. Returns null for an unknown name. NAME creates
  // a device "NAME:OTHER", which forwards its calls to OTHER; throws ErrorKind::Device if NAME creates none, or OTHER
  // has its own memory.
  ItemPtr find(uint32_t kind, std::string_view name);
  // As find, but throws ErrorKind::Name for an unknown name, with the nearest name and the remedy (--plugin,
  // `harmonics list`).
  ItemPtr need(uint32_t kind, std::string_view name);
  // Returns all names of a kind, loaded or announced by a manifest, sorted.
  std::vector<std::string> names(uint32_t kind);
  void load_everything();  // opens all announced libraries (for `list`)

  // Returns the implementations of a functional or primitive: those of this registry before those of `outer`, each
  // newest first.
  std::vector<ItemPtr> implementations(const std::string& functional);
  // Returns the selected implementation by functional. Entries of this registry hide those of `outer`. Programs use
  // them when they are compiled.
  std::map<std::string, std::string> overrides();
  // Returns the previous value, "" for none. Setting "" removes the override.
  std::string set_override(const std::string& functional, const std::string& implementation);

  // Returns the paths of libraries whose file changed since it was opened. Deleted files are not included.
  std::vector<std::string> changed_libraries();
  // Replaces items of a library by those of a new build with the same kind and name, and adds new names. Returns the
  // previous items (null: none) for put_back.
  std::vector<std::pair<ItemPtr, ItemPtr>> replace(const std::vector<std::shared_ptr<Item>>& items);
  void put_back(const std::vector<std::pair<ItemPtr, ItemPtr>>& replaced);

  // Announces that `path` provides these items, without opening it. The first library that announces a name keeps it.
  void announce(const std::string& library_path, const std::vector<std::pair<uint32_t, std::string>>& names);
  // Records an unusable library, for messages about unknown names.
  void pass_over(std::string reason);
  std::vector<std::string> passed_over();
  // Returns, once, a line for each library that replaces an item of another library with the same name, by its own
  // registration or by its position on the search path.
  std::vector<std::string> take_replacements();
  // Sets the registry to fall back to.
  void set_outer(Registry* outer) { outer_ = outer; }
  // Removes all items. Current users keep them.
  void clear();
  // Adds an item of a library that was opened because of its manifest. It replaces neither items added since nor names
  // that another library announced.
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
  std::map<Key, std::string> hidden_;                // names announced by a library after another had announced them
  std::map<std::string, std::string> replacements_;  // by path of the replacing library
};

// The library's own items. The rooms that own them are above this one; engine/library registers this table before
// main() begins.
struct LibraryItems {
  void (*add)(Registry& registry);  // the built-in streams and functions, called once by Registry::global()
  // True for names of the library's own functions, functionals, optimizers, schedules and augmentations: plugins cannot
  // use them.
  bool (*reserves)(uint32_t kind, const std::string& name);
};
void set_library_items(const LibraryItems& items);
const LibraryItems& library_items();  // std::logic_error: not given

}  // namespace harmonics::engine

// The object that hx_api.register_item receives: items wait here until harmonics_register has returned without error.
struct hx_registry {
  std::vector<std::shared_ptr<harmonics::engine::Item>> pending;
  std::function<void(std::shared_ptr<harmonics::engine::Item>)> take;  // if set, receives items at once instead
  std::string plugin, path;
  std::shared_ptr<harmonics::engine::Library> library;
  uint16_t contract_minor = HX_ABI_MINOR;
};
