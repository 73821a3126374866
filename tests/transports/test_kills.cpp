// Senders and receivers that are killed at random instants and started again: what a checkpoint has is each sample once, in each sender's order.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "tests/transports/checks.hpp"

using namespace transports;

extern char** environ;

namespace {

class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments) {
    std::vector<char*> pointers{const_cast<char*>(HARMONICS_PEER)};
    for (const std::string& a : arguments) pointers.push_back(const_cast<char*>(a.c_str()));
    pointers.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, HARMONICS_PEER, nullptr, nullptr, pointers.data(), environ) == 0);
  }
  ~Process() {
    if (pid_ > 0) kill();
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  // How it ended; none: not yet.
  std::optional<int> ended() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) pid_ = 0, code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
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
  return {"send", w.kind, w.address, "s" + std::to_string(s), std::to_string(s * 1000000), std::to_string(w.samples), "durable"};
}

// How many samples of each sender are in the state.
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

// Kills one of them now and then, starts it again, and lets all end.
void campaign(const World& w, int senders, int kills, bool also_senders, uint64_t seed) {
  INFO(w.kind << ", seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> receiver_arguments{"receive", w.kind, w.address, w.state};
  auto receiver = std::make_unique<Process>(receiver_arguments);
  std::vector<std::unique_ptr<Process>> processes;
  for (int s = 0; s < senders; ++s) processes.push_back(std::make_unique<Process>(sender_of(w, s)));
  for (int k = 0; k < kills; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 120));
    const size_t victim = also_senders ? random() % (static_cast<size_t>(senders) + 1) : 0;
    if (victim == 0) {
      REQUIRE(!receiver->ended());
      receiver->kill();
      receiver = std::make_unique<Process>(receiver_arguments);
    } else if (!processes[victim - 1]->ended()) {
      processes[victim - 1]->kill();
      processes[victim - 1] = std::make_unique<Process>(sender_of(w, static_cast<int64_t>(victim) - 1));
    }
  }
  const auto end = [](Process& p) {
    while (!p.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return *p.ended();
  };
  for (const auto& p : processes) CHECK(end(*p) == 0);
  std::ofstream(w.state + ".over") << "\n";
  CHECK(end(*receiver) == 0);
  std::map<int64_t, int64_t> next = taken(w.state);
  for (int s = 0; s < senders; ++s) CHECK(next[s] == w.samples);
  unlink(w.state.c_str()), unlink((w.state + ".over").c_str());
}

World world(const std::string& kind, int64_t samples) {
  static int number = 0;
  const std::string address = receive(kind)->address;  // free again, and nobody else's for the while
  return {kind, address, "/tmp/harmonics_kills_" + std::to_string(getpid()) + "_" + std::to_string(number++), samples};
}

}  // namespace

TEST_CASE("a receiver that is killed goes on behind its last checkpoint") {
  const Deadline deadline(std::chrono::seconds(60));
  const std::string kind = GENERATE(from_range(lossless()));
  campaign(world(kind, 900000), 1, 10, false, 20260 + kind.size());
}

TEST_CASE("senders and their receiver are killed, and nothing is lost or doubled") {
  const Deadline deadline(std::chrono::seconds(60));
  const std::string kind = GENERATE(from_range(lossless()));
  campaign(world(kind, 300000), 3, 10, true, 4260 + kind.size());
}
