// Handling of Ctrl-C, SIGTERM and SIGHUP (a closed terminal; under nohup it stays ignored) while a cycle runs, and
// removal of temporary files before and after.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

// While this lives, the first signal stops the running cycle after its step. Between cycles it is kept for stopped().
// With `leave`, the second signal calls it on a separate thread, with the running cycle (null: none) and the signal;
// the call does not return. The third, or without `leave` the second, ends the program at once. One at a time.
class StopSignals {
 public:
  using Leave = std::function<void(CycleRuntime*, int)>;
  explicit StopSignals(Leave leave = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Sets the running cycle, or null for none.
  void watch(CycleRuntime* runtime);
  // Returns whether a signal has arrived.
  bool stopped() const;
  // Returns the first signal while any of these lived, or 0.
  static int first();

 private:
  void wait_for_second();

  Leave leave_;
  std::mutex leaving_;  // held while `leave` runs
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

// A file to remove when a signal ends the program: while it waits for its streams, between cycles, by the second
// signal or the third. One at a time.
class LeftBehind {
 public:
  explicit LeftBehind(const std::string& path);
  ~LeftBehind();
  LeftBehind(const LeftBehind&) = delete;
  LeftBehind& operator=(const LeftBehind&) = delete;

  // Removes the file, if there is one. [any thread, and in a signal handler]
  static void remove();
};

}  // namespace harmonics::engine::cli
