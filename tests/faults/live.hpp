// A sender that is restarted until it has sent everything, and the result of training on its samples.
#pragma once

#include "tests/faults/faulted.hpp"

namespace faults {

// Ends when all samples are sent and durable, so a learner restarted after that continues without it. Its processes end
// with it.
class Sending {
 public:
  // `first`: variables of the first process only.
  explicit Sending(const std::string& arguments, const std::string& first = "") {
    const std::string send = "'" + kProgram + "' " + arguments + " >/dev/null 2>&1 </dev/null";
    const std::string loop = first + " " + send + " || until " + send + "; do sleep 0.05; done";
    group_ = ::fork();
    REQUIRE(group_ >= 0);
    if (group_ == 0) {
      ::setpgid(0, 0);
      ::execl("/bin/sh", "sh", "-c", loop.c_str(), nullptr);
      ::_exit(127);
    }
    ::setpgid(group_, group_);  // called in both processes, to avoid a race
  }
  ~Sending() {
    ::kill(-group_, SIGKILL);
    ::waitpid(group_, nullptr, 0);
  }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

 private:
  pid_t group_;
};

// Returns the numbers of a weights file, without its header.
inline std::string numbers_in(const std::string& path) {
  const std::string file = read(path);
  uint64_t header = 0;
  if (file.size() > sizeof header) std::memcpy(&header, file.data(), sizeof header);
  return file.size() > 8 + header ? file.substr(8 + header) : "";
}

// The samples of the small run, once, from one address.
struct Live {
  Folder f;
  Small small{f};
  std::string kept = f / "kept", spool = f / "spool", weights = f / "w.safetensors", socket = f / "s", undisturbed;
  std::string sending = "send 'unix:" + socket + "?patience=60' --from x=" + (f / "x.csv") +
                        " --from y=" + (f / "y.csv") + " --producer-name one --ack durable --quiet";
  std::string without_checkpoints = small.run() + "--quiet --producer x=unix:" + socket +
                                    "#x --producer y=unix:" + socket + "#y --save " + weights + " ";
  std::string learning = without_checkpoints + "--checkpoint " + kept + " --every 2steps --resume ";

  Live() {
    const Result still = harmonics(small.run() + "--quiet --epochs 1 --producer x=" + (f / "x.csv") +
                                   "?shuffle=0 --producer y=" + (f / "y.csv") + " --save " + weights);
    REQUIRE(still.code == 0);
    undisturbed = numbers_in(weights);
  }
  void begin_anew() {
    for (const std::string& path : {kept, spool, weights}) fs::remove_all(path);
  }
};

}  // namespace faults
