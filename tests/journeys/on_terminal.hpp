// Runs the program on a separate terminal.
#pragma once

#include <chrono>
#include <csignal>

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/journeys/shell.hpp"

namespace journeys {

class OnTerminal {
 public:
  OnTerminal(const std::string& arguments, unsigned short columns, unsigned short rows) {
    winsize size{rows, columns, 0, 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::alarm(120);
      ::execl("/bin/sh", "sh", "-c", ("exec '" + kProgram + "' " + arguments).c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~OnTerminal() {
    ::close(terminal_);
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(char key) { REQUIRE(::write(terminal_, &key, 1) == 1); }
  // Reads its output until `words` appear, for at most 30 s.
  bool await(const std::string& words) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!has(screen.substr(seen_), words) && std::chrono::steady_clock::now() < deadline && take(100)) continue;
    const bool found = has(screen.substr(seen_), words);
    UNSCOPED_INFO("waited for '" << words << "' in\n" << screen.substr(seen_, 3000));
    seen_ = screen.size();
    return found;
  }
  void resize(unsigned short columns, unsigned short rows) {
    const winsize size{rows, columns, 0, 0};
    REQUIRE(::ioctl(terminal_, TIOCSWINSZ, &size) == 0);
  }
  int end() {
    while (take(30000)) continue;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string screen;

 private:
  bool take(int milliseconds) {
    pollfd ready{terminal_, POLLIN, 0};
    const int n = ::poll(&ready, 1, milliseconds);
    if (n == 0) return milliseconds < 1000;
    char piece[4096];
    const ssize_t got = ::read(terminal_, piece, sizeof piece);
    if (got > 0) screen.append(piece, static_cast<size_t>(got));
    return got > 0;
  }
  int terminal_ = -1;
  pid_t pid_ = -1;
  size_t seen_ = 0;
};

}  // namespace journeys
