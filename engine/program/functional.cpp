#include "engine/program/functional.hpp"

#include <atomic>
#include <cstring>
#include <set>
#include <stdexcept>
#include <type_traits>
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
  try {
    functional.signature = parse_signature(functional.formula);
  } catch (const Error& e) {
    throw std::logic_error(functional.name + ": " + e.what());
  }
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

std::vector<std::string> Traits::names() const {
  std::vector<std::string> all;
  if (update == UpdateKind::one) all.push_back("update");
  if (update == UpdateKind::several) all.push_back("updates of several parameters");
  if (update == UpdateKind::factored) all.push_back("update from factors of the gradient");
  if (block_write) all.push_back("writes a block in place");
  if (order_free) all.push_back("order-free");
  if (free_types) all.push_back("inputs of several float types");
  return all;
}

FunctionalPtr called_by(const Node& node) {
  return node.op == Op::call ? FunctionalTable::global().find(node.callee) : nullptr;
}

BlockPart part_of(const Node& node) {
  const FunctionalPtr functional = called_by(node);
  return functional ? functional->traits.part : BlockPart::none;
}

FunctionalPtr joined_call(std::string_view first, std::string_view second) {
  for (const FunctionalPtr& f : FunctionalTable::global().all())
    if (f->traits.joins[0] == first && f->traits.joins[1] == second) return f;
  return nullptr;
}

void check_call(const Functional& functional, const AttributeMap& attributes, size_t inputs) {
  check_inputs(functional.name, functional.signature, inputs);
  check_attributes(functional.name, functional.signature, attributes);
}

namespace {

std::atomic<void (*)(const std::string&)> call_notes{nullptr};

void note_once(const Error& unknown) {
  static std::mutex mutex;
  static std::set<std::string> told;
  std::string line = unknown.what();
  for (const std::string& note : unknown.notes()) line += "; " + note;
  const std::lock_guard lock(mutex);
  const auto note = call_notes.load();
  if (note && told.insert(line).second) note(line + " (ignored: its plugin is built for contract 1.4 or earlier)");
}

}  // namespace

void set_call_notes(void (*note)(const std::string&)) { call_notes = note; }

AttributeMap known_attributes(std::string_view op, const AttributeMap& attributes) {
  const FunctionalPtr functional = attributes.empty() ? nullptr : FunctionalTable::global().find(op);
  if (!functional || functional->signature.more_attributes) return attributes;
  AttributeMap known;
  for (const auto& [name, value] : attributes.entries()) {
    if (functional->signature.attribute(name))
      known.set(name, value);
    else
      note_once(unknown_attribute(op, functional->signature, name));
  }
  return known;
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

// Appends values and lists as bytes after their sizes, so that different keys have different bytes.
class KeyBytes {
 public:
  explicit KeyBytes(std::string& to) : to_(to) {}
  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    to_.append(bytes, sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    to_ += text;
  }
  template <typename T>
  void operator()(const std::vector<T>& list) {
    (*this)(list.size());
    for (const T& each : list) (*this)(each);
  }

 private:
  std::string& to_;
};

// Bytes instead of a text: every pass asks for the body of every call, and formatting took a third of that.
std::string key_of(const Functional& functional, const AttributeMap& attributes,
                   const std::vector<TensorType>& inputs) {
  std::string key;
  key.reserve(256);
  KeyBytes add(key);
  add(functional.id);
  add(attributes.entries().size());
  for (const auto& [name, value] : attributes.entries()) {
    add(name);
    add(value.index());
    std::visit(add, value);
  }
  for (const TensorType& t : inputs) {
    add(static_cast<uint32_t>(t.dtype));
    add(t.shape.rank());
    for (const int64_t dim : t.shape) add(dim);
  }
  return key;
}

}  // namespace

std::shared_ptr<const Program> body_program(const Functional& functional, const AttributeMap& attributes,
                                            const std::vector<TensorType>& inputs) {
  const std::string key = key_of(functional, attributes, inputs);
  if (auto known = BodyCache::global().find(key)) return known;
  check_call(functional, attributes, inputs.size());
  Tracer tracer(functional.name);
  Values handles;
  for (size_t i = 0; i < inputs.size(); ++i) handles.push_back(tracer.input(std::to_string(i), inputs[i]));
  const Values results = functional.body(attributes, handles);
  for (size_t i = 0; i < results.size(); ++i) tracer.output(std::to_string(i), results[i]);
  return BodyCache::global().add(key, tracer.take());
}

}  // namespace harmonics::engine
