#include "engine/cycle/last_good.hpp"

#include <algorithm>
#include <cstring>

#include <time.h>

#include "engine/tensor/finite.hpp"
#include "engine/training/update.hpp"

namespace harmonics::engine {

namespace {

// A copy is made at most every kLeastSeconds, and at most every kRunPerCopy times its cost. After a failure the steps
// since the copy are repeated.
constexpr double kRunPerCopy = 400, kLeastSeconds = 1;

// Returns the CPU time of this thread. Other threads do not raise a cost measured with it.
double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

bool is_finite(const StoredTensor& t) { return first_not_finite(t.type.dtype, t.data(), t.type.shape.count()) < 0; }

void clear_moments(ParameterStore& store) {
  for (const auto& [name, t] : store.all())
    if (t.role == Role::moment) std::memset(store.find(name)->change(), 0, t.type.bytes());
}

LastGood::LastGood(const ParameterStore& store) {
  for (const auto& [name, t] : store.all())
    if (!is_finite(t)) never_finite_.insert(name);
}

std::string LastGood::first_non_finite(const ParameterStore& store) const {
  for (const auto& [name, t] : store.all())
    if (!is_accumulator(name) && !never_finite_.count(name) && !is_finite(t)) return name;
  return "";
}

void LastGood::keep(const BoundGraph& graph, RunState state, double now) {
  const double begun = processor_seconds();
  graph.snapshot(kept_.file);
  kept_.state = std::move(state);
  const double cost = 2 * (processor_seconds() - begun);  // the check costs as much as the copy
  next_ = now + std::max(kLeastSeconds, kRunPerCopy * cost);
}

RunState LastGood::copy_to(TensorFile& file) const {
  file.metadata = kept_.file.metadata;
  file.tensors.clear();
  for (const auto& [name, tensor] : kept_.file.tensors) {
    const TensorType type = type_of(tensor);
    const auto own = std::make_shared<Storage>(type.bytes());
    std::memcpy(own->data(), tensor.bytes(), type.bytes());
    file.tensors.emplace(name, make_value(type, own));
  }
  return kept_.state;
}

void LastGood::put_back(BoundGraph& graph) const {
  clear_moments(graph.store());
  graph.restore(kept_.file);
}

}  // namespace harmonics::engine
