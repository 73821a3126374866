#include "engine/program/functional.hpp"

#include <unordered_map>

#include "engine/program/tracer.hpp"

namespace harmonics {

FunctionalTable& FunctionalTable::global() {
  // Never destroyed: plugins' objects may look functionals up while the process ends.
  static FunctionalTable* const table = [] {
    auto* t = new FunctionalTable;
    register_reference_functionals(*t);
    return t;
  }();
  return *table;
}

void FunctionalTable::add(Functional functional) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Functional>& slot = table_[functional.name];
  if (slot) replaced_.push_back(std::move(slot));
  slot = std::make_unique<Functional>(std::move(functional));
}

const Functional* FunctionalTable::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = table_.find(name);
  return it == table_.end() ? nullptr : it->second.get();
}

std::vector<const Functional*> FunctionalTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Functional*> list;
  for (const auto& [name, functional] : table_) list.push_back(functional.get());
  return list;
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
    if (bodies_.size() >= kMost) bodies_.clear();  // who holds a body keeps it
    return bodies_.emplace(key, std::move(shared)).first->second;
  }

 private:
  static constexpr size_t kMost = 4096;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Program>> bodies_;
};

// The body's address tells apart functionals that replaced one another.
std::string key_of(const Functional& functional, const AttributeMap& attributes, const std::vector<TensorType>& inputs) {
  std::string key = functional.name + '@' + std::to_string(reinterpret_cast<uintptr_t>(functional.body)) + attributes.str();
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

}  // namespace harmonics
