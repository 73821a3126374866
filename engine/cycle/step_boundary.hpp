// StepBoundary: the boundary between two steps of a run. One thread runs the steps and holds the boundary for each of
// their batches; other threads hold it to look at the weights, or to change what computes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace harmonics::engine {

class StepBoundary {
 public:
  // One batch of the thread that runs the steps. Threads that asked for the boundary before it go first.
  class Turn {
   public:
    explicit Turn(StepBoundary& boundary);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Leaves the boundary to other threads while `wait` runs.
    template <class Wait>
    void leave_during(const Wait& wait) {
      held_.unlock();
      wait();
      held_.lock();
    }

   private:
    std::unique_lock<std::mutex> held_;
  };

  // Holds the boundary where all weights belong to one step. Waits for the end of the running step, or of the run. In
  // the thread that runs the steps it waits for nothing, and throws ErrorKind::Usage within a step.
  class Visit {
   public:
    explicit Visit(StepBoundary& boundary);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    // Returns whether a turn of this thread holds the boundary already.
    bool in_turn() const { return in_turn_; }

   private:
    StepBoundary& boundary_;
    const bool in_turn_;
    std::unique_lock<std::mutex> held_;
  };

  // ---- from any thread ----
  // Holds the boundary between two batches, which may be of one step.
  std::unique_lock<std::mutex> hold() { return std::unique_lock<std::mutex>(stepping_); }
  // Marks that no step follows, for whatever reason, and wakes all threads that wait for the end of a step.
  void end();
  // Returns whether a run has given this thread the turn.
  static bool in_turn_of_this_thread();
  // The mutex behind the boundary.
  std::mutex& mutex() { return stepping_; }

  // ---- boundary held ----
  // Weights are between two states until end_step().
  void begin_batch() { whole_ = false; }
  // Wakes threads that wait for the end of the step; they go on when the turn is over.
  void end_step();
  // Returns whether no step follows.
  bool over() const { return over_; }

 private:
  std::mutex stepping_;              // the boundary
  std::mutex turn_;                  // held while waiting for stepping_, so that the next batch does not start first
  std::condition_variable stepped_;  // a step has ended, or the run has
  std::atomic<int> asking_{0};       // threads that wait for the end of a step
  bool whole_ = true;                // no step is in progress
  bool over_ = false;                // nothing is left to checkpoint
};

}  // namespace harmonics::engine
