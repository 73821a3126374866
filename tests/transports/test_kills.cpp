// Kills senders and receivers at calls and samples chosen by a seed, and restarts them: a checkpoint contains each
// sample once, in each sender's order.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "tests/transports/checks.hpp"

using namespace transports;

extern char** environ;

namespace {

class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments, const std::vector<std::string>& variables = {}) {
    std::vector<char*> pointers{const_cast<char*>(HARMONICS_PEER)};
    for (const std::string& a : arguments) pointers.push_back(const_cast<char*>(a.c_str()));
    pointers.push_back(nullptr);
    std::vector<char*> all;
    for (char** own = environ; *own; ++own) all.push_back(*own);
    for (const std::string& v : variables) all.push_back(const_cast<char*>(v.c_str()));
    all.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, HARMONICS_PEER, nullptr, nullptr, pointers.data(), all.data()) == 0);
  }
  ~Process() {
    if (pid_ > 0) kill();
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  // Returns the exit status; none: still running.
  std::optional<int> ended() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_)
      pid_ = 0, code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return pid_ == 0 ? std::optional(code_) : std::nullopt;
  }

 private:
  pid_t pid_ = 0;
  int code_ = 0;
};

struct World {
  std::string kind, address, state;
  int64_t samples;
};

std::vector<std::string> sender_of(const World& w, int64_t s) {
  return {"send",   w.kind, w.address, "s" + std::to_string(s), std::to_string(s * 1000000), std::to_string(w.samples),
          "durable"};
}

// Returns the number of samples of each sender in the state.
std::map<int64_t, int64_t> taken(const std::string& path) {
  std::ifstream in(path);
  uint64_t index = 0;
  size_t senders = 0;
  in >> index >> senders;
  std::map<int64_t, int64_t> next;
  for (size_t i = 0; i < senders; ++i) {
    int64_t sender = 0;
    in >> sender;
    in >> next[sender];
  }
  return next;
}

// Chooses where a process is killed: at a call on its sockets or state, half done or not begun, or at a sample.
std::vector<std::string> death([[maybe_unused]] const World& w, std::mt19937_64& random) {
  const uint64_t kind = random() % 3, at = 1 + random() % 40;
#ifdef HARMONICS_FAULT_LAYER
  if (kind < 2)
    return {"LD_PRELOAD=" HARMONICS_FAULT_LAYER, "FAULTS_PATHS=" + w.state + "*:unix@*:tcp@*",
            "FAULTS_AT=" + std::to_string(at), std::string("FAULTS_DO=") + (kind == 0 ? "kill" : "tear")};
#endif
  return {"PEER_DIES_AT=" + std::to_string(at * 500 + kind)};
}

// A process that is killed this many times, and restarted each time.
class Lives {
 public:
  Lives(const World& w, std::vector<std::string> arguments, int kills, uint64_t seed)
      : world_(w), arguments_(std::move(arguments)), left_(kills), random_(seed) {
    begin();
  }
  // Returns the exit status; none: still running.
  std::optional<int> ended() {
    const auto code = process_->ended();
    if (!code || *code != -SIGKILL) return code;
    --left_;
    begin();
    return std::nullopt;
  }
  int left() const { return left_; }

 private:
  void begin() {
    process_ = std::make_unique<Process>(arguments_, left_ > 0 ? death(world_, random_) : std::vector<std::string>());
  }

  World world_;
  std::vector<std::string> arguments_;
  int left_;
  std::mt19937_64 random_;
  std::unique_ptr<Process> process_;
};

void campaign(const World& w, int senders, int kills, bool also_senders, uint64_t seed) {
  INFO(w.kind << ", seed " << seed);
  Lives receiver(w, {"receive", w.kind, w.address, w.state}, kills, seed);
  std::vector<std::unique_ptr<Lives>> processes;
  for (int s = 0; s < senders; ++s)
    processes.push_back(
        std::make_unique<Lives>(w, sender_of(w, s), also_senders ? kills / 2 : 0, seed + 1 + static_cast<uint64_t>(s)));
  std::vector<std::optional<int>> ends(processes.size());
  while (std::any_of(ends.begin(), ends.end(), [](const auto& end) { return !end; })) {
    REQUIRE(!receiver.ended());
    for (size_t s = 0; s < processes.size(); ++s)
      if (!ends[s]) ends[s] = processes[s]->ended();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (const auto& end : ends) CHECK(end == 0);
  std::ofstream(w.state + ".over") << "\n";
  std::optional<int> end;
  while (!(end = receiver.ended())) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(end == 0);
  // Not all kills are used if many samples arrive in few calls.
  CHECK(receiver.left() < kills);
  for (const auto& p : processes) CHECK((!also_senders || p->left() < kills / 2));
  std::map<int64_t, int64_t> next = taken(w.state);
  for (int s = 0; s < senders; ++s) CHECK(next[s] == w.samples);
  unlink(w.state.c_str()), unlink((w.state + ".over").c_str());
}

World world(const std::string& kind, int64_t samples) {
  static int number = 0;
  const std::string address = receive(kind)->address;  // free again, and not reused for a while
  return {kind, address, "/tmp/harmonics_kills_" + std::to_string(getpid()) + "_" + std::to_string(number++), samples};
}

}  // namespace

TEST_CASE("kills: a killed receiver resumes behind its last checkpoint") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  campaign(world(kind, 300000), 1, 10, false, 20260 + kind.size());
}

TEST_CASE("kills: killed senders and receivers lose and duplicate nothing") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  campaign(world(kind, 100000), 3, 10, true, 4260 + kind.size());
}
