#include "engine/cycle/cycle_results.hpp"

#include <cstring>

namespace harmonics::engine {

void CycleResults::keep(const StepProgram& p, Slot& slot) {
  for (size_t i = 0; i < cycle_.plan.wanted.size(); ++i) {
    slot.delivers[i] = p.results[i] != nullptr;
    if (!p.results[i]) continue;
    const TensorType& type = *cycle_.programs.result_types()[i];
    std::memcpy(slot.results[i].data(), p.results[i]->bytes(), type.bytes() * slot.count);
    if (!cycle_.hooks.repeats_until) finite_.look(i, type, slot);
  }
}

// Repeated steps deliver nothing: their results were delivered the first time.
void CycleResults::deliver(const Slot& slot) const {
  if (slot.count == 0 || cycle_.hooks.repeats_until) return;
  const CyclePlan& plan = cycle_.plan;
  for (size_t i = 0; i < plan.wanted.size(); ++i) {
    if (!slot.delivers[i]) continue;
    const TensorType& type = *cycle_.programs.result_types()[i];
    const int n = plan.wanted[i];
    plan.graph.sinks()
        .at(plan.is_consumer(n) ? n : -1)
        ->push(type.dtype, type.shape, slot.count, slot.results[i].data());
  }
}

}  // namespace harmonics::engine
