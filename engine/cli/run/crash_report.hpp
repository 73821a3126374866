// Reports a crash in plugin code: the plugin, and the command to resume the run.
#pragma once

#include <string>

#include "engine/base/alternate_stack.hpp"

namespace harmonics::engine::cli {

// During its lifetime, a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, on any thread) prints to standard error which
// plugin's code was running; then the signal ends the program as usual. A call of exit() prints the same and ends with
// kFailed. Signals with another handler are unchanged. Only one object may exist; the main thread must create it before
// it starts other threads.
class CrashReport {
 public:
  CrashReport();
  ~CrashReport();
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

  // Sets the folder of the run's checkpoints, and the command that resumes from the newest.
  static void set_resume_command(const std::string& folder, const std::string& command);

 private:
  AlternateStack stack_;
};

}  // namespace harmonics::engine::cli
