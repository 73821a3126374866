#include "engine/cycle/snapshot_step.hpp"

#include "engine/execution/device_memory.hpp"

namespace harmonics::engine {

namespace {

bool is_in_own_memory(const CompileOptions& options) {
  Registry& registry = options.registry ? *options.registry : Registry::global();
  const ItemPtr device = registry.find(HX_DEVICE, options.device);
  return device && has_own_memory(*device);
}

// Where the states of a plan lie in a snapshot. All snapshots of a cycle have the same layouts.
std::vector<void*> addresses_in(const ParameterStore& store, const std::vector<BoundState>& states) {
  std::vector<void*> addresses;
  for (const BoundState& state : states) {
    const auto at = store.all().find(state.name);
    if (at == store.all().end() || at->second.type_in_memory() != state.type)
      throw Error(ErrorKind::Internal, "a snapshot has no '" + state.name + "' of type " + state.type.str());
    addresses.push_back(at->second.storage->data());
  }
  return addresses;
}

}  // namespace

SnapshotStep::SnapshotStep(Lowered lowered, Snapshots& snapshots, Executor& executor, CompileOptions options)
    : lowered_(std::move(lowered)),
      snapshots_(snapshots),
      executor_(executor),
      options_(std::move(options)),
      own_memory_(is_in_own_memory(options_)) {
  first_ = &compiled(snapshots_.newest()->place());
}

CompiledStep& SnapshotStep::compiled(size_t place) {
  std::unique_ptr<CompiledStep>& step = steps_[place];
  if (!step) step = std::make_unique<CompiledStep>(lowered_, snapshots_.place(place), executor_, options_);
  return *step;
}

CompiledStep& SnapshotStep::on(const Snapshot& snapshot) {
  if (own_memory_) return compiled(snapshot.place());
  std::vector<void*>& addresses = addresses_[snapshot.place()];
  const std::vector<BoundState>& states = first_->executable().states();
  if (addresses.size() != states.size()) addresses = addresses_in(snapshot.weights(), states);
  first_->bind(addresses);
  return *first_;
}

}  // namespace harmonics::engine
