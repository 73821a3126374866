// Runs the program in the background, so that tests can send it signals.
#pragma once

#include <chrono>
#include <csignal>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include "tests/journeys/shell.hpp"

namespace journeys {

// A run that trains on digits longer than any test lasts.
inline const std::string kLongRun =
    kSamples +
    "mnist.hmx --producer 'synth:digits?size=640' --producer 'synth:digits?size=640#label' "
    "--epochs 1000000 --for 100s --threads 1 ";

class Background {
 public:
  // `hang_up`: the action of SIGHUP, SIG_IGN as under nohup.
  Background(const Folder& folder, const std::string& arguments, void (*hang_up)(int) = SIG_DFL)
      : out_(folder / "bg.out"), err_(folder / "bg.err") {
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::alarm(120);  // ends it even if the test crashes
      ::signal(SIGHUP, hang_up);
      ::execl("/bin/sh", "sh", "-c",
              ("exec '" + kProgram + "' " + arguments + " >'" + out_ + "' 2>'" + err_ + "' </dev/null").c_str(),
              nullptr);
      ::_exit(127);
    }
  }
  ~Background() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void signal(int number) { ::kill(pid_, number); }
  pid_t process() const { return pid_; }
  std::string errors() const { return read(err_); }  // so far
  // Limits the size of all files it writes from now on.
  void limit_files(rlim_t bytes) {
    const rlimit limit{bytes, bytes};
    REQUIRE(::prlimit(pid_, RLIMIT_FSIZE, &limit, nullptr) == 0);
  }
  // Returns false after `seconds`.
  template <typename Holds>
  bool await(Holds holds, double seconds = 60) {
    for (int i = 0; i < seconds * 100; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  Result end() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(out_), read(err_)};
    UNSCOPED_INFO("exit " << r.code << "\n" << r.out.substr(0, 1000) << r.err.substr(0, 3000));
    return r;
  }

 private:
  std::string out_, err_;
  pid_t pid_;
};

}  // namespace journeys
