// StepBoundary: the boundary between two steps of a run. One thread runs the steps and holds the boundary during each
// batch. Other threads hold it to read the weights or to change the programs that compute them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace harmonics::engine {

class StepBoundary {
 public:
  // A turn of the thread that runs the steps, for one batch. Threads that requested the boundary before it go first.
  class Turn {
   public:
    explicit Turn(StepBoundary& boundary);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Releases the boundary while `wait` runs.
    template <class Wait>
    void leave_during(const Wait& wait) {
      held_.unlock();
      wait();
      held_.lock();
    }

   private:
    std::unique_lock<std::mutex> held_;
  };

  // Holds the boundary at a point where all weights belong to one step. Waits for the end of the running step, or of
  // the run. In the thread that runs the steps it does not wait, and throws ErrorKind::Usage within a step.
  class Visit {
   public:
    explicit Visit(StepBoundary& boundary);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    // Returns whether this thread holds the boundary already, through a turn.
    bool in_turn() const { return in_turn_; }

   private:
    StepBoundary& boundary_;
    const bool in_turn_;
    std::unique_lock<std::mutex> held_;
  };

  // ---- callable from any thread ----
  // Holds the boundary between two batches, which may be of one step.
  std::unique_lock<std::mutex> hold() { return std::unique_lock<std::mutex>(stepping_); }
  // Marks that no step follows, for whatever reason. Wakes all threads that wait for the end of a step.
  void end();
  // Returns whether this thread has the turn of a run.
  static bool in_turn_of_this_thread();
  // Returns the mutex that implements the boundary.
  std::mutex& mutex() { return stepping_; }

  // ---- require the boundary ----
  // Marks the weights as incomplete until end_step().
  void begin_batch() { whole_ = false; }
  // Wakes threads that wait for the end of the step. They continue when the turn is over.
  void end_step();
  // Returns whether no step follows.
  bool over() const { return over_; }

 private:
  std::mutex stepping_;              // the boundary
  std::mutex turn_;                  // held while waiting for stepping_, so that the next batch does not start first
  std::condition_variable stepped_;  // a step has ended, or the run has
  std::atomic<int> asking_{0};       // threads waiting for the end of a step
  bool whole_ = true;                // no step is in progress
  bool over_ = false;                // no step follows
};

}  // namespace harmonics::engine
