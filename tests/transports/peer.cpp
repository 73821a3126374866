// A sending or receiving process that may be killed: "send KIND ADDRESS NAME FIRST COUNT ACK" or "receive KIND ADDRESS
// STATE", the latter until STATE.over exists. The receiver writes its samples and positions to STATE at intervals,
// atomically, and resumes from there. With PEER_DIES_AT=N in the environment, its N-th action is SIGKILL.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "tests/transports/ends.hpp"

using namespace transports;

namespace {

// Called before and after a sample or a state.
void act() {
  static std::atomic<uint64_t> acts{0};
  static const char* const set = std::getenv("PEER_DIES_AT");
  static const uint64_t last = set ? std::strtoull(set, nullptr, 10) : 0;
  if (++acts == last) ::raise(SIGKILL);
}

void send_numbers(const std::string& kind, const std::string& address, const std::string& name, int64_t first,
                  int64_t count, bool durable) {
  wire::OutboxOptions options;
  options.producer = name;
  options.tensors = {{"x", DType::I64, {16}, {}}};
  options.patience = std::chrono::seconds(30);
  options.whole_source = true;
  options.batch_bytes = 4096;
  options.keep_bytes = 256u << 10;
  options.acknowledgement = durable ? wire::Acknowledgement::Durable : wire::Acknowledgement::Received;
  const auto sender = send(kind, address, options);
  for (int64_t i = first; i < first + count; ++i) {
    int64_t sample[16];
    std::fill(std::begin(sample), std::end(sample), i);
    const std::span<const std::byte> piece = std::as_bytes(std::span(sample));
    act();
    sender->outbox().push(std::span(&piece, 1));
  }
  sender->outbox().finish();
}

// The number of samples of each sender and the stream's position, written atomically.
struct State {
  uint64_t index = 0;
  std::string position;
  std::map<int64_t, int64_t> next;
};

State read_state(const std::string& path) {
  State state;
  std::ifstream in(path);
  if (!in) return state;
  size_t senders = 0;
  in >> state.index >> senders;
  for (size_t i = 0; i < senders; ++i) {
    int64_t sender = 0;
    in >> sender;
    in >> state.next[sender];
  }
  in.get();
  std::getline(in, state.position);
  return state;
}

void write_state(const std::string& path, const State& state) {
  {
    std::ofstream out(path + ".new");
    out << state.index << ' ' << state.next.size();
    for (const auto& [sender, next] : state.next) out << ' ' << sender << ' ' << next;
    out << '\n' << state.position << '\n';
  }
  act();
  std::rename((path + ".new").c_str(), path.c_str());
  act();
}

void receive_numbers(const std::string& kind, const std::string& address, const std::string& path) {
  State state = read_state(path);
  const auto receiving = receive(kind, address);
  wire::Inbox& inbox = receiving->inbox();
  const int reader = inbox.open("", std::chrono::seconds(30));
  inbox.restore(reader, state.index, state.position);
  std::mutex mutex;
  std::atomic<bool> over{false};
  const auto checkpoint = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    state.position = inbox.position(reader, state.index);
    write_state(path, state);
    inbox.durable(reader, state.index);
  };
  // A timer: while no samples arrive, a sender may wait for durability.
  std::thread clock([&] {
    for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      checkpoint();
      if (access((path + ".over").c_str(), F_OK) == 0) over = true;
    }
    inbox.cancel(reader);
  });
  while (!over) {
    const auto sample = inbox.next(reader);
    if (!sample) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // another sender may follow one that has ended
      continue;
    }
    act();
    int64_t number = 0;
    std::memcpy(&number, sample->bytes.bytes.data(), sizeof number);
    const std::lock_guard<std::mutex> lock(mutex);
    int64_t& next = state.next[number / 1000000];
    if (number % 1000000 != next)
      std::fprintf(stderr, "sample %ld, wanted is %ld\n", static_cast<long>(number), static_cast<long>(next)), _exit(4);
    ++next;
    ++state.index;
  }
  clock.join();
  checkpoint();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    if (a.size() == 7 && a[0] == "send")
      return send_numbers(a[1], a[2], a[3], std::stoll(a[4]), std::stoll(a[5]), a[6] == "durable"), 0;
    if (a.size() == 4 && a[0] == "receive") return receive_numbers(a[1], a[2], a[3]), 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", a[0].c_str(), e.what());
    return 1;
  }
  return 2;
}
