#include "engine/cli/run/stop_signals.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace harmonics::engine::cli {

namespace {

// Read by the signal handler.
std::atomic<CycleRuntime*> running{nullptr};
std::atomic<bool> listens{false};
std::atomic<int> count{0}, first_signal{0}, second_pipe{-1};
std::array<char, PATH_MAX> left_behind{};
std::atomic<bool> leaves{false};  // the path in left_behind is valid

void set_handlers(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  if (std::signal(SIGHUP, handler) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // remains ignored under nohup
}

// Ends the process with the default action of the signal.
void end_by(int signal) {
  LeftBehind::remove();
  set_handlers(SIG_DFL);
  ::raise(signal);  // delivered when the handler returns
}

void on_signal(int signal) {
  const int kept = errno;
  if (!listens) return end_by(signal);
  const int n = ++count, pipe = second_pipe;
  if (n == 1) {
    first_signal = signal;
    if (CycleRuntime* const runtime = running) runtime->stop();
  } else if (pipe < 0) {
    end_by(signal);
  } else {
    const auto byte = static_cast<char>(signal);
    if (n > 2 || ::write(pipe, &byte, 1) != 1) {
      LeftBehind::remove();
      ::_exit(128 + signal);
    }
  }
  errno = kept;
}

void on_reload(int) {
  if (CycleRuntime* runtime = running) runtime->reload_plugins();
}

}  // namespace

StopSignals::StopSignals(Leave leave) : leave_(std::move(leave)) {
  if (leave_ && ::pipe2(pipe_, O_CLOEXEC) == 0) thread_ = std::thread([this] { wait_for_second(); });
  second_pipe = pipe_[1];
  count = first_signal = 0;
  listens = true;
  set_handlers(on_signal);
  std::signal(SIGUSR1, on_reload);
}

StopSignals::~StopSignals() {
  if (!leaves) set_handlers(SIG_DFL);
  std::signal(SIGUSR1, SIG_IGN);
  listens = false;
  running = nullptr;
  second_pipe = -1;
  if (pipe_[1] >= 0) ::close(pipe_[1]);  // wakes the thread
  if (thread_.joinable()) thread_.join();
  if (pipe_[0] >= 0) ::close(pipe_[0]);
}

// A signal that arrives during this call is handled once: it stops the cycle, or stopped() reports it before the next
// cycle.
void StopSignals::watch(CycleRuntime* runtime) {
  const std::lock_guard<std::mutex> lock(leaving_);
  running = runtime;
  if (runtime && count > 0) runtime->stop();
}

bool StopSignals::stopped() const { return count > 0; }

int StopSignals::first() { return first_signal; }

void StopSignals::wait_for_second() {
  char signal = 0;
  ssize_t got = 0;
  do got = ::read(pipe_[0], &signal, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1) return;
  const std::lock_guard<std::mutex> lock(leaving_);
  leave_(running, signal);
}

LeftBehind::LeftBehind(const std::string& path) {
  if (path.size() >= left_behind.size()) return;  // too long for a file name
  std::memcpy(left_behind.data(), path.c_str(), path.size() + 1);
  leaves = true;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);  // remains ignored in background jobs
}

LeftBehind::~LeftBehind() {
  leaves = false;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
}

void LeftBehind::remove() {
  if (leaves) ::unlink(left_behind.data());
}

}  // namespace harmonics::engine::cli
