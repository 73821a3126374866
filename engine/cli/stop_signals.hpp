// Ctrl-C and SIGTERM while a cycle runs, and what they may not leave behind before and after.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics::cli {

// While this lives, the first signal stops `runtime` after its step. With `leave`, the second calls it on a thread of its own,
// with the signal; it does not come back. The third, or without `leave` the second, ends the program at once. One at a time.
class StopSignals {
 public:
  explicit StopSignals(CycleRuntime& runtime, std::function<void(int)> leave = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first that came while any of these lived; 0: none.
  static int first();

 private:
  void wait_for_second();

  std::function<void(int)> leave_;
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

// A file that would be left behind where a signal ends the program: while it waits for its streams, between cycles, by the second signal or the third.
// One at a time.
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
