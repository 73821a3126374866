#include "engine/cycle/step_boundary.hpp"

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

thread_local const StepBoundary* running = nullptr;  // the boundary whose turn this thread has

}  // namespace

bool StepBoundary::in_turn_of_this_thread() { return running != nullptr; }

StepBoundary::Turn::Turn(StepBoundary& boundary) : held_(boundary.stepping_, std::defer_lock) {
  if (boundary.asking_.load(std::memory_order_acquire) > 0) {
    const std::lock_guard<std::mutex> after_those(boundary.turn_);
  }
  held_.lock();
  running = &boundary;
}

StepBoundary::Turn::~Turn() { running = nullptr; }

StepBoundary::Visit::Visit(StepBoundary& boundary) : boundary_(boundary), in_turn_(running == &boundary) {
  if (in_turn_) {  // in a callback after a step, or in a function within one
    if (!boundary.whole_)
      throw Error(ErrorKind::Usage,
                  "a function called by the running step requested the weights, which are incomplete during a step", {},
                  {"call it at the end of a step, or from another thread"});
    return;
  }
  // Counted before this thread waits: a step that misses the count ends without a notification, but the next one sees
  // it.
  boundary.asking_.fetch_add(1);
  std::unique_lock<std::mutex> turn(boundary.turn_);
  held_ = boundary.hold();
  turn.unlock();
  boundary.stepped_.wait(held_, [&] { return boundary.over_ || boundary.whole_; });
}

StepBoundary::Visit::~Visit() {
  if (!in_turn_) boundary_.asking_.fetch_sub(1);
}

void StepBoundary::end_step() {
  whole_ = true;
  if (asking_.load(std::memory_order_acquire) > 0) stepped_.notify_all();
}

void StepBoundary::end() {
  {
    const std::lock_guard<std::mutex> lock(stepping_);
    over_ = true;
  }
  stepped_.notify_all();
}

}  // namespace harmonics::engine
