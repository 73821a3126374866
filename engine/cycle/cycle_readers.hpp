// CycleReaders: the weights of a running cycle for readers beside it.
#pragma once

#include <functional>
#include <memory>

#include "engine/cycle/cycle_context.hpp"
#include "engine/cycle/snapshot.hpp"

namespace harmonics::engine {

class CycleReaders {
 public:
  explicit CycleReaders(CycleContext& cycle) : cycle_(cycle) {}
  ~CycleReaders();
  CycleReaders(const CycleReaders&) = delete;
  CycleReaders& operator=(const CycleReaders&) = delete;

  // Hands snapshots to the hook, if there is one: before the first step, and after functions were replaced.
  void offer();
  // After arguments were changed: new snapshots, also without a hook. Boundary held.
  void renew();
  // Returns the snapshots, or null if no step follows. `between` runs first, between two steps. Callable from any
  // thread.
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);

  // ---- the thread of the steps, boundary held ----
  void begin_batch() {
    if (snapshots_) snapshots_->begin();
  }
  void end_step() {
    if (snapshots_) snapshots_->end(cycle_.record.step());
  }
  // No step follows for a while: readers get the weights of the last one.
  void settle() {
    if (snapshots_) snapshots_->settle();
  }

 private:
  void make();

  CycleContext& cycle_;
  std::shared_ptr<Snapshots> snapshots_;  // null: no readers
};

}  // namespace harmonics::engine
