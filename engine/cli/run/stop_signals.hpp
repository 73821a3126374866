// Handles Ctrl-C, SIGTERM and SIGHUP (a closed terminal; ignored under nohup) while a cycle runs, and removes temporary
// files at other times.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

// During its lifetime, the first signal stops the running cycle after its step; between cycles stopped() reports it.
// The second signal calls `leave` on a separate thread, with the running cycle (null: none) and the signal; `leave`
// does not return. The third signal, or the second without `leave`, ends the program immediately. Only one object may
// exist.
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
  // Returns the first signal during the lifetime of any such object, or 0.
  static int first();

 private:
  void wait_for_second();

  Leave leave_;
  std::mutex leaving_;  // held while `leave` runs
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

// A file that is removed when a signal ends the program: while it waits for streams, between cycles, at the second
// signal or the third. Only one object may exist.
class LeftBehind {
 public:
  explicit LeftBehind(const std::string& path);
  ~LeftBehind();
  LeftBehind(const LeftBehind&) = delete;
  LeftBehind& operator=(const LeftBehind&) = delete;

  // Removes the file if there is one. Thread-safe and async-signal-safe.
  static void remove();
};

}  // namespace harmonics::engine::cli
