// Reports a crash in plugin code: which plugin it was, and how the run can be resumed.
#pragma once

#include <string>

#include "engine/base/alternate_stack.hpp"

namespace harmonics::engine::cli {

// While it lives, a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, on any thread) prints on standard error which
// plugin's code ran, and the program ends by that signal as before. A call of exit() prints the same and ends with
// kFailed. Signals that already have another handler are not touched. One at a time, made by the main thread before
// others begin.
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
