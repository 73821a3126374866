// Work that may crash or hang, done in a child process that talks through a pipe.
#pragma once

#include <functional>
#include <string>

namespace harmonics {

struct ChildEnd {
  int signal = 0;          // what ended it; 0: it came to its end
  int code = 0;            // what it gave to exit(), where no signal ended it
  bool timed_out = false;  // it said nothing for too long and was killed
};

// Forks; `body` runs in the child and may write lines with `say`. The parent hands each line to `heard` and waits for
// the next, at most the seconds that `patience` gives then. The child's standard output goes to standard error. What
// the child began ends with it, and the child ends with its parent. Throws ErrorKind::Internal where the system
// refuses.
ChildEnd in_child_process(const std::function<void(const std::function<void(const std::string&)>& say)>& body,
                          const std::function<void(const std::string& line)>& heard,
                          const std::function<double()>& patience);

// "SIGSEGV"
std::string signal_name(int signal);

}  // namespace harmonics
