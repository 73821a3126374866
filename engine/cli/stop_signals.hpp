// Ctrl-C, SIGTERM and SIGHUP (a terminal that goes away; under nohup it stays ignored) while a cycle runs, and what
// they may not leave behind before and after.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::cli {

// While this lives, the first signal stops the cycle that runs after its step; between cycles it is kept for stopped().
// With `leave`, the second calls it on a thread of its own, with the cycle that runs (null: none) and the signal; it
// does not come back. The third, or without `leave` the second, ends the program at once. One at a time.
class StopSignals {
 public:
  using Leave = std::function<void(CycleRuntime*, int)>;
  explicit StopSignals(Leave leave = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The cycle that runs from now on; null: none does.
  void watch(CycleRuntime* runtime);
  // Has one come?
  bool stopped() const;
  // The first that came while any of these lived; 0: none.
  static int first();

 private:
  void wait_for_second();

  Leave leave_;
  std::mutex leaving_;  // held while `leave` runs
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

// A file that would be left behind where a signal ends the program: while it waits for its streams, between cycles, by
// the second signal or the third. One at a time.
class LeftBehind {
 public:
  explicit LeftBehind(const std::string& path);
  ~LeftBehind();
  LeftBehind(const LeftBehind&) = delete;
  LeftBehind& operator=(const LeftBehind&) = delete;

  // Removes it, if there is one. [any thread, and in a signal's handler]
  static void remove();
};

}  // namespace harmonics::cli
