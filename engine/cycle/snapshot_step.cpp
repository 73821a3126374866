#include "engine/cycle/snapshot_step.hpp"

#include "engine/execution/device_memory.hpp"

namespace harmonics::engine {

namespace {

// Returns null if the options name no device with its own memory.
ItemPtr device_with_own_memory(const CompileOptions& options) {
  Registry& registry = options.registry ? *options.registry : Registry::global();
  const ItemPtr device = registry.find(HX_DEVICE, options.device);
  return device && has_own_memory(*device) ? device : nullptr;
}

}  // namespace

SnapshotStep::SnapshotStep(Lowered lowered, Snapshots& snapshots, Executor& executor, const CompileOptions& options)
    : snapshots_(snapshots) {
  if (const ItemPtr device = device_with_own_memory(options)) snapshots_.share_queue(device);
  step_ = std::make_unique<CompiledStep>(std::move(lowered), snapshots.place(snapshots.newest()->place()), executor,
                                         options);
}

// Returns the memory of the plan's states in a buffer. All snapshots of a cycle have the same layouts.
SnapshotStep::Place SnapshotStep::place_of(size_t place) {
  Place found;
  ParameterStore& store = snapshots_.place(place);
  const auto queue = step_->executable().queue();
  for (const BoundState& state : step_->executable().states()) {
    const StoredTensor* stored = store.find(state.name);
    if (!stored || stored->type_in_memory() != state.type)
      throw Error(ErrorKind::Internal, "a snapshot has no '" + state.name + "' of type " + state.type.str());
    if (!queue)
      found.addresses.push_back(stored->storage->data());
    else  // snapshots share tensors that no program changes
      found.tensors.push_back(stored->fixed ? nullptr : store.parameter_on(queue, state.name, state.type));
  }
  return found;
}

CompiledStep& SnapshotStep::on(const Snapshot& snapshot) {
  Place& place = places_[snapshot.place()];
  if (place.addresses.empty() && place.tensors.empty()) place = place_of(snapshot.place());
  if (step_->executable().queue())
    step_->bind(place.tensors);
  else
    step_->bind(place.addresses);
  return *step_;
}

}  // namespace harmonics::engine
