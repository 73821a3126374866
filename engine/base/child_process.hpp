// Runs work that may crash or hang in a child process that reports through a pipe.
#pragma once

#include <functional>
#include <string>

namespace harmonics::engine {

struct ChildEnd {
  int signal = 0;          // the signal that ended it; 0: none
  int code = 0;            // its exit code, if no signal ended it
  bool timed_out = false;  // killed after silence
};

// Forks. `body` runs in the child and may write lines with `say`. The parent passes each line to `heard` and waits for
// the next, at most the seconds that `patience` then returns. The child's standard output goes to standard error.
// Processes started by the child end with it, and the child ends with its parent. Throws ErrorKind::Internal if the
// system call fails.
ChildEnd in_child_process(const std::function<void(const std::function<void(const std::string&)>& say)>& body,
                          const std::function<void(const std::string& line)>& heard,
                          const std::function<double()>& patience);

// Returns "SIGSEGV".
std::string signal_name(int signal);

}  // namespace harmonics::engine
