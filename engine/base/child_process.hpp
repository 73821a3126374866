// Work that may crash or hang, done in a child process that talks through a pipe.
#pragma once

#include <functional>
#include <string>

namespace harmonics {

struct ChildEnd {
  int signal = 0;          // what ended it; 0: it came to its end
  bool timed_out = false;  // it said nothing for too long and was killed
};

// Forks; `body` runs in the child and may write lines with `say`. The parent hands each line to `heard` and waits, at
// most `seconds` from one line to the next. The child's standard output goes to standard error. To be called before the
// process has threads. Throws ErrorKind::Internal where the system refuses.
ChildEnd in_child_process(const std::function<void(const std::function<void(const std::string&)>& say)>& body,
                          const std::function<void(const std::string& line)>& heard, double seconds);

// "SIGSEGV"
std::string signal_name(int signal);

}  // namespace harmonics
