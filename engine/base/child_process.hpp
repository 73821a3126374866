// Runs work that may crash or hang in a child process that reports through a pipe.
#pragma once

#include <functional>
#include <string>

namespace harmonics::engine {

struct ChildEnd {
  int signal = 0;          // the signal that ended it; 0: none
  int code = 0;            // its exit code, if no signal ended it
  bool timed_out = false;  // killed, because it wrote no line in time
};

// Forks and runs `body` in the child, which sends lines to the parent with `say`. The parent passes each line to
// `heard`, and calls `patience` before each wait for the maximum number of seconds. The child's standard output goes to
// standard error. Processes started by the child end with it, and the child ends with its parent. Throws
// ErrorKind::Internal if a system call fails.
ChildEnd in_child_process(const std::function<void(const std::function<void(const std::string&)>& say)>& body,
                          const std::function<void(const std::string& line)>& heard,
                          const std::function<double()>& patience);

// Returns the name of a signal, such as "SIGSEGV".
std::string signal_name(int signal);

}  // namespace harmonics::engine
