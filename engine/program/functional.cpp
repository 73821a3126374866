#include "engine/program/functional.hpp"

#include <atomic>
#include <stdexcept>
#include <unordered_map>

#include <fmt/core.h>

#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

constinit FunctionalSources the_sources{};

const FunctionalSources& sources() {
  if (!the_sources.add_library) throw std::logic_error("engine/library is not linked into this program");
  return the_sources;
}

}  // namespace

void set_functional_sources(const FunctionalSources& sources) { the_sources = sources; }

FunctionalTable& FunctionalTable::global() {
  // Never destroyed: plugin objects may look up functionals during process exit.
  static FunctionalTable* const table = [] {
    auto* t = new FunctionalTable;
    sources().add_library(*t);
    return t;
  }();
  return *table;
}

namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

}  // namespace

void FunctionalTable::add(Functional functional) {
  functional.id = next_id();
  auto shared = std::make_shared<const Functional>(std::move(functional));
  const std::lock_guard lock(mutex_);
  table_[shared->name] = shared;
}

FunctionalPtr FunctionalTable::own(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = table_.find(name);
  return it == table_.end() ? nullptr : it->second;
}

bool FunctionalTable::has_own(std::string_view name) const { return own(name) != nullptr; }

FunctionalPtr FunctionalTable::find(std::string_view name) {
  if (FunctionalPtr found = own(name)) return found;
  return of_plugin(name);
}

FunctionalPtr FunctionalTable::of_plugin(std::string_view name) {
  const ItemPtr item = Registry::global().find(HX_FUNCTIONAL, name);
  if (!item) return nullptr;
  const std::lock_guard lock(mutex_);
  auto& [made_for, functional] = plugins_[std::string(name)];
  if (functional && made_for.lock() == item) return functional;
  Functional made = sources().of_plugin(item);
  made.name = name;
  made.description = item->description;
  made.id = next_id();
  made_for = item;
  return functional = std::make_shared<const Functional>(std::move(made));
}

std::vector<FunctionalPtr> FunctionalTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<FunctionalPtr> list;
  for (const auto& [name, functional] : table_) list.push_back(functional);
  return list;
}

std::vector<std::string> FunctionalTable::names() const {
  std::vector<std::string> names = Registry::global().names(HX_FUNCTIONAL);
  for (const FunctionalPtr& f : all()) names.push_back(f->name);
  return names;
}

uint16_t contract_minor_of(std::string_view op, const AttributeMap& attributes) {
  if (attributes.empty()) return 0;
  const FunctionalPtr functional = FunctionalTable::global().find(op);
  return functional && functional->contract_minor ? functional->contract_minor(attributes) : uint16_t{0};
}

namespace {

class BodyCache {
 public:
  static BodyCache& global() {
    static BodyCache* const cache = new BodyCache;
    return *cache;
  }
  std::shared_ptr<const Program> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it = bodies_.find(key);
    return it == bodies_.end() ? nullptr : it->second;
  }
  std::shared_ptr<const Program> add(const std::string& key, Program body) {
    auto shared = std::make_shared<const Program>(std::move(body));
    const std::lock_guard lock(mutex_);
    if (bodies_.size() >= kMost) bodies_.clear();  // users of a body keep it alive
    return bodies_.emplace(key, std::move(shared)).first->second;
  }

 private:
  static constexpr size_t kMost = 4096;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Program>> bodies_;
};

std::string key_of(const Functional& functional, const AttributeMap& attributes,
                   const std::vector<TensorType>& inputs) {
  std::string key = functional.name + '@' + std::to_string(functional.id) + attributes.str();
  for (const TensorType& t : inputs) key += '|' + t.str();
  return key;
}

}  // namespace

std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs) {
  const std::string key = key_of(functional, attributes, inputs);
  if (auto known = BodyCache::global().find(key)) return known;
  Tracer tracer(functional.name);
  Values handles;
  for (size_t i = 0; i < inputs.size(); ++i) handles.push_back(tracer.input(std::to_string(i), inputs[i]));
  const Values results = functional.body(attributes, handles);
  for (size_t i = 0; i < results.size(); ++i) tracer.output(std::to_string(i), results[i]);
  return BodyCache::global().add(key, tracer.take());
}

}  // namespace harmonics::engine
