#include "engine/cycle/cycle_readers.hpp"

namespace harmonics::engine {

CycleReaders::~CycleReaders() {
  if (snapshots_) snapshots_->detach();
}

void CycleReaders::make() {
  const CyclePlan& plan = cycle_.plan;
  snapshots_ =
      std::make_shared<Snapshots>(plan.graph.store(), WeightsVersion{plan.cycle, cycle_.record.step()},
                                  [this](const std::string& tensor) { return cycle_.programs.changes(tensor); });
  snapshots_->attach(cycle_.boundary.mutex());
}

void CycleReaders::offer() {
  if (!cycle_.hooks.snapshots) return;
  if (snapshots_) snapshots_->detach(true);  // between two steps, after functions were replaced
  make();
  cycle_.hooks.snapshots(snapshots_);
}

void CycleReaders::renew() {
  if (cycle_.hooks.snapshots) return offer();
  if (!snapshots_) return;
  snapshots_->detach(true);
  make();
}

std::shared_ptr<Snapshots> CycleReaders::snapshots(const std::function<void()>& between) {
  const StepBoundary::Visit visit(cycle_.boundary);
  if (cycle_.boundary.over()) return nullptr;
  between();
  if (!snapshots_) make();
  if (visit.in_turn()) snapshots_->settle();
  return snapshots_;
}

}  // namespace harmonics::engine
