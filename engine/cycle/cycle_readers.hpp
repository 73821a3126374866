// CycleReaders: provides the weights of a running cycle to concurrent readers.
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

  // Passes snapshots to the hook, if there is one: before the first step, and after functions were replaced.
  void offer();
  // Creates new snapshots after arguments were changed, also without a hook. Requires the boundary.
  void renew();
  // Returns the snapshots, or null if no step follows. Calls `between` first, between two steps. Callable from any
  // thread.
  std::shared_ptr<Snapshots> snapshots(const std::function<void()>& between);

  // ---- thread of the steps, boundary held ----
  void begin_batch() {
    if (snapshots_) snapshots_->begin();
  }
  void end_step() {
    if (snapshots_) snapshots_->end(cycle_.record.step());
  }
  // Called if no step follows for a while. Readers get the weights of the last step.
  void settle() {
    if (snapshots_) snapshots_->settle();
  }

 private:
  void make();

  CycleContext& cycle_;
  std::shared_ptr<Snapshots> snapshots_;  // null: no readers
};

}  // namespace harmonics::engine
