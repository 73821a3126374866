// What is said when the code of a plugin ends the program: whose it was, and what the run can go on from.
#pragma once

#include <string>

#include "engine/base/alternate_stack.hpp"

namespace harmonics::cli {

// While it lives, a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, on any thread) says on standard error which
// plugin's code ran, and the program ends by that signal as before; a call of exit() says the same and ends with
// kFailed. Signals that something else listens to are left to it. One at a time, made by the main thread before others
// begin.
class CrashReport {
 public:
  CrashReport();
  ~CrashReport();
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

  // Where the checkpoints of the run are, and the command that goes on from the newest.
  static void set_way_on(const std::string& folder, const std::string& command);

 private:
  AlternateStack stack_;
};

}  // namespace harmonics::cli
