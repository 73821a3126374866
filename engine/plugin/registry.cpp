#include "engine/plugin/registry.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <stdexcept>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/plugin/discovery.hpp"
#include "engine/plugin/kinds.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics::engine {

namespace {

// Returns whether `path`, with links resolved, is `file`.
bool is_file(const std::string& path, const std::string& file) {
  std::error_code none;
  return path == file || std::filesystem::weakly_canonical(path, none).string() == file;
}

}  // namespace

namespace {

constinit LibraryItems the_library_items{};

}  // namespace

void set_library_items(const LibraryItems& items) { the_library_items = items; }

const LibraryItems& library_items() {
  if (!the_library_items.add) throw std::logic_error("engine/library is not linked into this program");
  return the_library_items;
}

Item::~Item() {
  if (vtable) kind_row(kind).destroy(vtable, self);
}

Registry& Registry::global() {
  // Never destroyed, because threads may use its items until the process exits.
  static Registry* registry = [] {
    auto made = std::make_unique<Registry>();
    library_items().add(*made);
    harmonics::engine::announce(discover_plugins(plugin_search_path(), plugin_cache_path()), *made);
    return made.release();
  }();
  return *registry;
}

void Registry::add(std::shared_ptr<Item> item) {
  if (outer_ && item->kind == HX_FUNCTIONAL) return outer_->add(std::move(item));  // functionals have global names
  static std::atomic<uint64_t> count{0};
  std::lock_guard lock(mutex_);
  item->order = ++count;
  Key key{item->kind, item->name};
  if (item->library) {
    const auto former = items_.find(key);
    const auto announced = announced_.find(key);
    if (former != items_.end() && former->second->path != item->path)
      note_replaced(*item, former->second->path);
    else if (former == items_.end() && announced != announced_.end() && !is_file(announced->second, item->path))
      note_replaced(*item, announced->second);
  }
  items_[std::move(key)] = std::move(item);
}

void Registry::note_replaced(const Item& item, const std::string& former) {
  std::string& line = replacements_[item.path];
  const std::string of = former.empty() ? "the program" : std::filesystem::path(former).filename().string();
  line += fmt::format("{}{} '{}' of {}", line.empty() ? "plugin '" + item.plugin + "' replaces " : ", ",
                      kind_name(item.kind), item.name, of);
}

std::vector<std::string> Registry::take_replacements() {
  std::vector<std::string> lines = outer_ ? outer_->take_replacements() : std::vector<std::string>{};
  std::lock_guard lock(mutex_);
  for (auto& [path, line] : std::exchange(replacements_, {})) lines.push_back(std::move(line));
  return lines;
}

void Registry::add_announced(std::shared_ptr<Item> item) {
  std::lock_guard lock(mutex_);
  Key key{item->kind, item->name};
  const auto other = announced_.find(key);
  if (other != announced_.end() && !is_file(other->second, item->path)) return;
  items_.try_emplace(std::move(key), std::move(item));
}

ItemPtr Registry::find(uint32_t kind, std::string_view name) {
  {
    std::lock_guard lock(mutex_);
    const Key key{kind, std::string(name)};
    if (auto it = items_.find(key); it != items_.end()) return it->second;
    if (auto it = announced_.find(key); it != announced_.end()) {
      const std::string path = it->second;
      open_announced(path);
      if (auto found = items_.find(key); found != items_.end()) {
        if (const auto other = hidden_.find(key); other != hidden_.end()) {
          note_replaced(*found->second, other->second);
          hidden_.erase(other);
        }
        return found->second;
      }
      throw Error(ErrorKind::Plugin, "the manifest of plugin '" + path + "' promises " + std::string(kind_name(kind)) +
                                         " '" + key.second + "', the library does not have it")
          .note("rebuild the plugin; its manifest and its library differ");
    }
  }
  if (outer_) return outer_->find(kind, name);
  const size_t colon = name.find(':');  // streams such as file:NAME also contain a colon
  const bool wraps = kind == HX_DEVICE && colon != std::string_view::npos && find(kind, name.substr(0, colon));
  return wraps ? wrapped_device(name) : nullptr;
}

ItemPtr Registry::wrapped_device(std::string_view name) {
  const size_t colon = name.find(':');
  const ItemPtr maker = need(HX_DEVICE, name.substr(0, colon)), inner = need(HX_DEVICE, name.substr(colon + 1));
  const auto &table = maker->table<hx_device_vt>(), &of = inner->table<hx_device_vt>();
  const bool wraps = HM_TABLE_HAS(table, wrap);
  if (wraps && HM_TABLE_HAS(of, open_queue))
    throw Error(ErrorKind::Device, fmt::format("device '{}' has its own memory; '{}' passes calls on to devices in "
                                               "host memory",
                                               inner->name, maker->name));
  auto item = std::make_shared<Item>();
  const hx_device_vt* made = nullptr;
  const hx_status status =
      wraps ? table.wrap(maker->self, &of, inner->self, &made, &item->self) : hx_status{HX_DECLINED};
  if (status != HX_DECLINED) detail::check(status);
  if (status != HX_OK || !made)
    throw Error(ErrorKind::Device, fmt::format("device '{}' passes no calls on to '{}'", maker->name, inner->name))
        .note("'harmonics list devices' shows which devices pass calls on");
  item->vtable = made;
  item->kind = HX_DEVICE;
  item->name = name;
  item->description = fmt::format("{} ({})", inner->description, maker->description);
  item->plugin = maker->plugin;
  item->path = maker->path;
  item->contract_minor = maker->contract_minor;
  item->library = maker->library;
  item->inner = inner;
  std::lock_guard lock(mutex_);
  return items_.try_emplace(Key{HX_DEVICE, item->name}, item).first->second;
}

void Registry::open_announced(const std::string& path) {
  if (opened_.insert(path).second) {
    try {
      load_announced(path, *this);
    } catch (...) {
      opened_.erase(path);
      throw;
    }
  }
}

ItemPtr Registry::need(uint32_t kind, std::string_view name) {
  if (ItemPtr item = find(kind, name)) return item;
  const std::string kind_text(kind_name(kind)), name_text(name);
  Error error(ErrorKind::Name, "unknown " + kind_text + " '" + name_text + "'");
  const std::vector<std::string> known = names(kind);
  if (const std::string meant = did_you_mean(name, known); !meant.empty()) {
    error.note(meant);
  } else {
    for (const KindRow& row : kind_rows())
      if (row.kind != kind && knows(row.kind, name_text))
        error.note("note: '" + name_text + "' is known as " + std::string(row.name));
    if (!known.empty()) error.note("note: known ones: " + comma_separated(known));
  }
  for (const std::string& reason : passed_over()) error.note("note: a plugin was skipped: " + reason);
  throw error.note(plugin_help(kind));
}

std::vector<std::string> Registry::changed_libraries() {
  std::map<std::string, FileStamp> opened;
  std::vector<std::string> paths = outer_ ? outer_->changed_libraries() : std::vector<std::string>{};
  std::lock_guard lock(mutex_);
  for (const auto& [key, item] : items_)
    if (item->library) opened.emplace(item->path, item->library->stamp());
  for (const auto& [path, stamp] : opened) {
    const FileStamp now = stamp_of(path);
    if (now != FileStamp{} && now != stamp && std::find(paths.begin(), paths.end(), path) == paths.end())
      paths.push_back(path);
  }
  return paths;
}

std::vector<std::pair<ItemPtr, ItemPtr>> Registry::replace(const std::vector<std::shared_ptr<Item>>& items) {
  std::vector<std::pair<ItemPtr, ItemPtr>> replaced;
  std::vector<std::shared_ptr<Item>> rest;
  {
    std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Item>& item : items) {
      const auto at = items_.find(Key{item->kind, item->name});
      if (at == items_.end() || at->second->path != item->path) {
        rest.push_back(item);
        continue;
      }
      replaced.emplace_back(item, at->second);
      at->second = item;
    }
    if (!outer_ || !replaced.empty()) {  // items of the previous build are here, so new names belong here too
      for (const std::shared_ptr<Item>& item : rest)
        if (items_.try_emplace(Key{item->kind, item->name}, item).second) replaced.emplace_back(item, nullptr);
      return replaced;
    }
  }
  return outer_->replace(rest);
}

void Registry::put_back(const std::vector<std::pair<ItemPtr, ItemPtr>>& replaced) {
  std::vector<std::pair<ItemPtr, ItemPtr>> rest;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [item, former] : replaced) {
      const auto at = items_.find(Key{item->kind, item->name});
      if (at == items_.end() || at->second != item) {
        rest.emplace_back(item, former);
        continue;
      }
      if (former)
        at->second = former;
      else
        items_.erase(at);
    }
  }
  if (outer_ && !rest.empty()) outer_->put_back(rest);
}

void Registry::pass_over(std::string reason) {
  std::lock_guard lock(mutex_);
  passed_over_.push_back(std::move(reason));
}

std::vector<std::string> Registry::passed_over() {
  std::vector<std::string> all = outer_ ? outer_->passed_over() : std::vector<std::string>{};
  std::lock_guard lock(mutex_);
  all.insert(all.end(), passed_over_.begin(), passed_over_.end());
  return all;
}

void Registry::clear() {
  std::map<Key, ItemPtr> gone;  // destroyed after unlocking
  std::lock_guard lock(mutex_);
  gone.swap(items_);
}

bool Registry::knows(uint32_t kind, const std::string& name) {
  const std::vector<std::string> known = names(kind);
  return std::binary_search(known.begin(), known.end(), name);
}

std::vector<std::string> Registry::names(uint32_t kind) {
  std::set<std::string> all;
  if (outer_)
    for (std::string& name : outer_->names(kind)) all.insert(std::move(name));
  std::lock_guard lock(mutex_);
  for (const auto& [key, item] : items_)
    if (key.first == kind) all.insert(key.second);
  for (const auto& [key, path] : announced_)
    if (key.first == kind) all.insert(key.second);
  return {all.begin(), all.end()};
}

std::vector<ItemPtr> Registry::implementations(const std::string& functional) {
  std::lock_guard lock(mutex_);
  const std::string prefix = functional + ".";
  std::set<std::string> own;
  for (const auto& [key, item] : items_)
    if (key.first == HX_IMPLEMENTATION && key.second.rfind(prefix, 0) == 0) own.insert(key.second);
  for (const auto& [key, path] : announced_)
    if (key.first == HX_IMPLEMENTATION && key.second.rfind(prefix, 0) == 0) own.insert(key.second);
  std::vector<ItemPtr> found;
  for (const std::string& name : own) found.push_back(find(HX_IMPLEMENTATION, name));
  std::stable_sort(found.begin(), found.end(), [](const ItemPtr& a, const ItemPtr& b) { return a->order > b->order; });
  if (outer_)
    for (ItemPtr& item : outer_->implementations(functional))
      if (!own.count(item->name)) found.push_back(std::move(item));
  return found;
}

std::map<std::string, std::string> Registry::overrides() {
  std::map<std::string, std::string> all;
  if (outer_) all = outer_->overrides();
  std::lock_guard lock(mutex_);
  for (const auto& [functional, implementation] : overrides_) all[functional] = implementation;
  return all;
}

std::string Registry::set_override(const std::string& functional, const std::string& implementation) {
  std::lock_guard lock(mutex_);
  const auto at = overrides_.find(functional);
  std::string before = at == overrides_.end() ? "" : at->second;
  if (implementation.empty())
    overrides_.erase(functional);
  else
    overrides_[functional] = implementation;
  return before;
}

void Registry::load_everything() {
  if (outer_) outer_->load_everything();
  std::lock_guard lock(mutex_);
  std::set<std::string> paths;
  for (const auto& [key, path] : announced_) paths.insert(path);
  for (const std::string& path : paths) open_announced(path);
}

void Registry::announce(const std::string& library_path, const std::vector<std::pair<uint32_t, std::string>>& names) {
  std::lock_guard lock(mutex_);
  for (const Key& key : names)
    if (const auto [first, fresh] = announced_.try_emplace(key, library_path); !fresh && first->second != library_path)
      hidden_.try_emplace(key, library_path);
}

}  // namespace harmonics::engine
