#include "engine/cli/stop_signals.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <unistd.h>

namespace harmonics::cli {

namespace {

// What the handler sees.
std::atomic<CycleRuntime*> running{nullptr};
std::atomic<int> count{0}, first_signal{0}, second_pipe{-1};

void set_handlers(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

void on_signal(int signal) {
  const int kept = errno;
  const int n = ++count, pipe = second_pipe;
  if (n == 1) {
    first_signal = signal;
    if (CycleRuntime* runtime = running) runtime->stop();
    if (pipe < 0) set_handlers(SIG_DFL);
  }
  const auto byte = static_cast<char>(signal);
  if (n > 2 || (n == 2 && ::write(pipe, &byte, 1) != 1)) ::_exit(128 + signal);
  errno = kept;
}

void on_reload(int) {
  if (CycleRuntime* runtime = running) runtime->reload_plugins();
}

}  // namespace

StopSignals::StopSignals(CycleRuntime& runtime, std::function<void(int)> leave) : leave_(std::move(leave)) {
  if (leave_ && ::pipe2(pipe_, O_CLOEXEC) == 0) thread_ = std::thread([this] { wait_for_second(); });
  second_pipe = pipe_[1];
  running = &runtime;
  count = first_signal = 0;
  set_handlers(on_signal);
  std::signal(SIGUSR1, on_reload);
}

StopSignals::~StopSignals() {
  set_handlers(SIG_DFL);
  std::signal(SIGUSR1, SIG_IGN);
  running = nullptr;
  second_pipe = -1;
  if (pipe_[1] >= 0) ::close(pipe_[1]);  // wakes the thread
  if (thread_.joinable()) thread_.join();
  if (pipe_[0] >= 0) ::close(pipe_[0]);
}

int StopSignals::first() { return first_signal; }

void StopSignals::wait_for_second() {
  char signal = 0;
  ssize_t got = 0;
  do got = ::read(pipe_[0], &signal, 1);
  while (got < 0 && errno == EINTR);
  if (got == 1) leave_(signal);
}

}  // namespace harmonics::cli
