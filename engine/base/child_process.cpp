#include "engine/base/child_process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

[[noreturn]] void refused(const char* call) {
  throw Error(ErrorKind::Internal, std::string(call) + " failed: " + std::strerror(errno));
}

void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(1);  // the pipe is closed
    at += static_cast<size_t>(n);
  }
}

// Appends available bytes to `buffer`. Returns false at the end of the pipe or after a timeout.
bool read_some(int fd, double seconds, std::string& buffer, bool& timed_out) {
  pollfd p{fd, POLLIN, 0};
  int ready = 0;
  do ready = ::poll(&p, 1, static_cast<int>(std::clamp(seconds * 1000, 1.0, 1e9)));
  while (ready < 0 && errno == EINTR);
  timed_out = ready == 0;
  if (ready <= 0) return false;
  char some[4096];
  const ssize_t n = ::read(fd, some, sizeof some);
  if (n <= 0) return n < 0 && errno == EINTR;
  buffer.append(some, static_cast<size_t>(n));
  return true;
}

}  // namespace

ChildEnd in_child_process(const std::function<void(const std::function<void(const std::string&)>&)>& body,
                          const std::function<void(const std::string&)>& heard,
                          const std::function<double()>& patience) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) refused("pipe");  // a program that another thread starts must not hold it open
  std::fflush(nullptr);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) {
    const int reason = errno;
    for (const int end : ends) ::close(end);
    errno = reason;
    refused("fork");
  }
  ::setpgid(pid, 0);  // called in both processes, to avoid a race
  if (pid == 0) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
    ::close(ends[0]);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    body([&](const std::string& line) { write_all(ends[1], line + "\n"); });
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::close(ends[1]);
  ChildEnd end;
  std::string buffer;
  while (read_some(ends[0], patience(), buffer, end.timed_out))
    for (size_t at; (at = buffer.find('\n')) != std::string::npos; buffer.erase(0, at + 1)) heard(buffer.substr(0, at));
  ::close(ends[0]);
  if (end.timed_out) ::kill(-pid, SIGKILL);
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  ::kill(-pid, SIGKILL);  // its remaining descendants; the group id is still reserved
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (end.timed_out) return end;
  if (WIFSIGNALED(status))
    end.signal = WTERMSIG(status);
  else
    end.code = WEXITSTATUS(status);
  return end;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace harmonics::engine
