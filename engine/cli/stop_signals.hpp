// Ctrl-C and SIGTERM while a cycle runs.
#pragma once

#include <functional>
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

}  // namespace harmonics::cli
