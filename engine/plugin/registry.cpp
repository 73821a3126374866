#include "engine/plugin/registry.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>

#include <harmonics/metric_abi.h>

#include "engine/base/spelling.hpp"
#include "engine/plugin/loader.hpp"

namespace harmonics {

namespace {

struct KindRow {
  uint32_t kind;
  std::string_view name, plural, listed;  // listed: what `harmonics list` calls them
};
constexpr std::array<KindRow, 7> kKinds{{{HX_ACTIVATION, "activation", "activations", "functions"},
                                         {HX_LOSS, "loss", "losses", "functions"},
                                         {HX_LAYER, "layer", "layers", "functions"},
                                         {HX_PRODUCER, "producer", "producers", "producers"},
                                         {HX_CONSUMER, "consumer", "consumers", "consumers"},
                                         {HX_DEVICE, "device", "devices", "devices"},
                                         {HX_METRIC, "metric", "metrics", "metrics"}}};

const KindRow& row_of(uint32_t kind) {
  for (const KindRow& row : kKinds)
    if (row.kind == kind) return row;
  throw Error(ErrorKind::Internal, "no kind of item has the number " + std::to_string(kind));
}

template <typename Table>
void destroy_with(const void* vtable, void* self) {
  const auto& table = *static_cast<const Table*>(vtable);
  if (table.struct_size >= offsetof(Table, destroy) + sizeof table.destroy && table.destroy) table.destroy(self);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::vector<uint32_t> item_kinds() {
  std::vector<uint32_t> kinds;
  for (const KindRow& row : kKinds) kinds.push_back(row.kind);
  return kinds;
}

std::string_view kind_name(uint32_t kind) { return row_of(kind).name; }

uint32_t kind_named(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (row.name == name || row.plural == name) return row.kind;
  return 0;
}

Item::~Item() {
  if (!vtable) return;
  if (kind == HX_ACTIVATION) destroy_with<hx_activation_vt>(vtable, self);
  if (kind == HX_LOSS) destroy_with<hx_loss_vt>(vtable, self);
  if (kind == HX_LAYER) destroy_with<hx_layer_vt>(vtable, self);
  if (kind == HX_PRODUCER) destroy_with<hx_producer_factory_vt>(vtable, self);
  if (kind == HX_CONSUMER) destroy_with<hx_consumer_factory_vt>(vtable, self);
  if (kind == HX_DEVICE) destroy_with<hx_device_vt>(vtable, self);
  if (kind == HX_METRIC) destroy_with<hx_metric_factory_vt>(vtable, self);
}

Registry& Registry::global() {
  // Never destroyed: threads may still use its items while the process ends.
  static Registry* registry = [] {
    auto made = std::make_unique<Registry>();
    register_builtin_items(*made);
    for (const std::string& directory : plugin_search_path()) announce_directory(directory, *made);
    return made.release();
  }();
  return *registry;
}

void Registry::add(std::shared_ptr<Item> item) {
  std::lock_guard lock(mutex_);
  Key key{item->kind, item->name};
  items_[std::move(key)] = std::move(item);
}

void Registry::add_announced(std::shared_ptr<Item> item) {
  std::lock_guard lock(mutex_);
  Key key{item->kind, item->name};
  const auto other = announced_.find(key);
  if (other != announced_.end() && other->second != item->path) return;
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
      if (auto found = items_.find(key); found != items_.end()) return found->second;
      throw Error(ErrorKind::Plugin, "the manifest of plugin '" + path + "' promises " + std::string(kind_name(kind)) +
                                         " '" + key.second + "', the library does not have it")
          .note("rebuild the plugin; its manifest and its library differ");
    }
  }
  return outer_ ? outer_->find(kind, name) : nullptr;
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
  if (auto near = nearest(name, known)) {
    error.note("did you mean '" + *near + "'?");
  } else {
    for (const KindRow& row : kKinds)
      if (row.kind != kind && knows(row.kind, name_text))
        error.note("note: '" + name_text + "' is known as " + std::string(row.name));
    if (!known.empty()) error.note("note: known are " + joined(known));
  }
  throw error.note("a plugin that has it is loaded with --plugin PATH; 'harmonics list " +
                   std::string(row_of(kind).listed) + "' shows what is there");
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

void Registry::load_everything() {
  if (outer_) outer_->load_everything();
  std::lock_guard lock(mutex_);
  std::set<std::string> paths;
  for (const auto& [key, path] : announced_) paths.insert(path);
  for (const std::string& path : paths) open_announced(path);
}

void Registry::announce(const std::string& library_path, const std::vector<std::pair<uint32_t, std::string>>& names) {
  std::lock_guard lock(mutex_);
  for (const Key& key : names) announced_.try_emplace(key, library_path);
}

}  // namespace harmonics
