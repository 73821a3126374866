// live_throughput [GIGABYTES [ROUNDS [TEXT]]]: compares HXS/1 over ZeroMQ with libzmq alone, between two processes over
// loopback, at equal message sizes. The cases (those with TEXT in their names) alternate, so that other load on the
// machine affects all. Prints medians of the rounds; CPU seconds are those of both processes.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "plugins/zmq/receiver.hpp"
#include "plugins/zmq/sender.hpp"

using namespace harmonics;

namespace {

struct Case {
  const char* name;
  size_t bytes;          // bytes of a sample
  bool raw;              // PUSH and PULL, one sample per message
  uint64_t batch_bytes;  // HXS: bytes of a frame; 1: one sample per frame
};
constexpr Case kCases[] = {
    {"raw 64 KiB", 65536, true, 0},
    {"hxs 64 KiB", 65536, false, 1},
    {"raw 3136 B", 3136, true, 0},
    {"hxs 3136 B", 3136, false, 1},
    {"hxs 3136 B batched", 3136, false, 256u << 10},
};

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); }
double processor_seconds() {
  double all = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    all += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return all;
}

struct Measured {
  double seconds = 0, processor = 0;
};

using Begin = std::function<void(uint16_t port)>;  // reports the port to send to

// Runs `body` in a child process, which is killed when this process ends.
pid_t child_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  std::_Exit(0);
}

// One process sends to the port that the other one, the receiver, reports. Both are new, so that their heaps are clean.
Measured measure(const std::function<void(uint16_t)>& send, const std::function<double(const Begin&)>& take) {
  int port_ends[2], time_ends[2];
  if (pipe(port_ends) != 0 || pipe(time_ends) != 0) std::abort();
  const double before = processor_seconds();
  const pid_t sender = child_of([&] {
    close(port_ends[1]), close(time_ends[1]);
    uint16_t port = 0;
    if (read(port_ends[0], &port, sizeof port) == sizeof port) send(port);
  });
  const pid_t receiver = child_of([&] {
    const double seconds = take([&](uint16_t port) {
      if (write(port_ends[1], &port, sizeof port) != sizeof port) std::abort();
    });
    if (write(time_ends[1], &seconds, sizeof seconds) != sizeof seconds) std::abort();
  });
  close(port_ends[1]), close(time_ends[1]);
  Measured measured;
  if (read(time_ends[0], &measured.seconds, sizeof measured.seconds) != sizeof measured.seconds)
    std::exit(1);  // the error has been printed
  for (const pid_t child : {sender, receiver}) waitpid(child, nullptr, 0);
  close(port_ends[0]), close(time_ends[0]);
  measured.processor = processor_seconds() - before;
  return measured;
}

double since(wire::Time begin) { return std::chrono::duration<double>(wire::now() - begin).count(); }

Measured raw(const Case& c, uint64_t count) {
  const auto send = [&](uint16_t port) {
    void* const context = zmq_ctx_new();
    void* const socket = zmq_socket(context, ZMQ_PUSH);
    zmq_connect(socket, ("tcp://127.0.0.1:" + std::to_string(port)).c_str());
    const std::vector<char> sample(c.bytes, 7);
    for (uint64_t i = 0; i < count; ++i) zmq_send(socket, sample.data(), sample.size(), 0);
    zmq_close(socket), zmq_ctx_term(context);
  };
  return measure(send, [&](const Begin& begin) {
    void* const context = zmq_ctx_new();
    void* const socket = zmq_socket(context, ZMQ_PULL);
    zmq_bind(socket, "tcp://127.0.0.1:*");
    char endpoint[64];
    size_t size = sizeof endpoint;
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &size);
    begin(static_cast<uint16_t>(std::atoi(std::strrchr(endpoint, ':') + 1)));
    zmq_msg_t message;
    zmq_msg_init(&message);
    wire::Time first{};
    for (uint64_t i = 0; i < count; ++i) {
      zmq_msg_recv(&message, socket, 0);
      if (i == 0) first = wire::now();
    }
    const double seconds = since(first);
    zmq_msg_close(&message), zmq_close(socket), zmq_ctx_term(context);
    return seconds;
  });
}

Measured hxs(const Case& c, uint64_t count) {
  const auto send = [&](uint16_t port) {
    wire::OutboxOptions options;
    options.producer = "bench";
    options.tensors = {{"x", DType::U8, {static_cast<int64_t>(c.bytes)}, {}}};
    options.batch_bytes = c.batch_bytes;
    zmq::Sender sender(zmq::parse_address(zmq::Pattern::Dealer, "127.0.0.1:" + std::to_string(port)), options);
    const std::vector<std::byte> sample(c.bytes, std::byte{7});
    const std::span<const std::byte> piece(sample);
    for (uint64_t i = 0; i < count; ++i) sender.outbox().push(std::span(&piece, 1));
    sender.outbox().finish();
  };
  return measure(send, [&](const Begin& begin) {
    zmq::Receiver receiver(zmq::parse_address(zmq::Pattern::Router, "127.0.0.1:0"));
    wire::Inbox& inbox = receiver.inbox();
    const int reader = inbox.open("", std::chrono::seconds(20));
    begin(receiver.port());
    wire::Time first{};
    uint64_t got = 0;
    if (c.batch_bytes > 1) {  // reads batches, like a flow
      std::vector<std::byte> batch(64 * c.bytes);
      for (uint64_t n = 1; n > 0; got += n) {
        n = inbox.read(reader, 64, batch.data());
        if (got == 0) first = wire::now();
      }
    }
    while (const auto sample = inbox.next(reader)) {
      if (got++ == 0) first = wire::now();
    }
    const double seconds = since(first);
    if (got != count)
      std::printf("%llu samples instead of %llu\n", static_cast<unsigned long long>(got),
                  static_cast<unsigned long long>(count)),
          std::exit(1);
    return seconds;
  });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const double gigabytes = argc > 1 ? std::atof(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const char* const only = argc > 3 ? argv[3] : "";
  constexpr size_t n = std::size(kCases);
  std::vector<double> rates[n], processor[n];
  for (int r = 0; r < rounds; ++r)
    for (size_t i = 0; i < n; ++i) {
      const Case& c = kCases[i];
      if (!std::strstr(c.name, only)) continue;
      const auto count = static_cast<uint64_t>(gigabytes * 1e9 / static_cast<double>(c.bytes)) + 1;
      const Measured m = c.raw ? raw(c, count) : hxs(c, count);
      rates[i].push_back(static_cast<double>(count * c.bytes) / m.seconds / 1e6);
      processor[i].push_back(m.processor / (static_cast<double>(count * c.bytes) / 1e9));
    }
  std::printf("%-20s %10s %12s %8s %14s\n", "", "MB/s", "samples/s", "of raw", "CPU s per GB");
  for (size_t i = 0, beside = 0; i < n; ++i) {
    if (kCases[i].raw) beside = i;
    if (rates[i].empty()) continue;
    std::vector<double> ratios;
    for (size_t r = 0; r < rates[i].size(); ++r)
      ratios.push_back(rates[beside].empty() ? 0 : rates[i][r] / rates[beside][r]);
    const double rate = median(rates[i]);
    std::printf("%-20s %10.0f %12.0f %8.2f %14.2f\n", kCases[i].name, rate,
                rate * 1e6 / static_cast<double>(kCases[i].bytes), median(ratios), median(processor[i]));
  }
}
