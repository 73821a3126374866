// The ends of every transport behind one face, and what the tests of them share.
#pragma once

#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "wire/inbox.hpp"
#include "wire/outbox.hpp"

namespace transports {

using namespace harmonics;

class Receiving {
 public:
  virtual ~Receiving() = default;
  virtual wire::Inbox& inbox() = 0;
  std::string address;  // where to send, without the scheme
};
class Sending {
 public:
  virtual ~Sending() = default;
  virtual wire::Outbox& outbox() = 0;
};

// Those that promise to lose nothing: "tcp", "unix", ...
std::vector<std::string> lossless();
// Those that count what they lose: "zmq+pull", "zmq+sub".
std::vector<std::string> at_most_once();
// At an address of its own, or there.
std::unique_ptr<Receiving> receive(const std::string& kind, const std::string& address = "", wire::InboxOptions options = {});
std::unique_ptr<Sending> send(const std::string& kind, const std::string& address, wire::OutboxOptions options);

constexpr auto kPatience = std::chrono::seconds(20);
constexpr int64_t kSide = 28;

// Ends the program when the test takes longer: none of them may hang.
class Deadline {
 public:
  explicit Deadline(std::chrono::seconds most = std::chrono::seconds(100))
      : thread_([this, most, name = Catch::getResultCapture().getCurrentTestName()] {
          for (const auto end = wire::now() + most; !over_; std::this_thread::sleep_for(std::chrono::milliseconds(20)))
            if (wire::now() > end) std::fprintf(stderr, "'%s' takes too long\n", name.c_str()), std::abort();
        }) {}
  ~Deadline() { over_ = true, thread_.join(); }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Options of a sender of pictures whose first bytes are the sample's number, and of labels that are it.
wire::OutboxOptions pictures(const std::string& name);
void push_picture(wire::Outbox& outbox, int64_t number);
void push_pictures(wire::Outbox& outbox, int64_t first, int64_t count);

// Work on a thread, which must not fail.
class Worker {
 public:
  template <typename Work> explicit Worker(Work work)
      : thread_([this, work] {
          try {
            work();
          } catch (const std::exception& e) {
            error_ = e.what();
          }
          done_ = true;
        }) {}
  ~Worker() {
    if (thread_.joinable()) thread_.join();
  }
  bool is_done() const { return done_; }
  // "" or what went wrong.
  std::string end() {
    thread_.join();
    return error_;
  }

 private:
  std::string error_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Sends `count` pictures and ends.
std::unique_ptr<Worker> sending(const std::string& kind, const std::string& address, const std::string& name, int64_t first, int64_t count);

inline int64_t number(std::span<const std::byte> bytes) {
  int64_t value = 0;
  REQUIRE(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
// The next sample's number; -1 at the end.
inline int64_t next_number(wire::Inbox& inbox, int reader) {
  const auto sample = inbox.next(reader);
  return sample ? number(sample->bytes.bytes) : -1;
}

// The same where the stream may have ended, and another sender will come.
inline int64_t next_number_of_any(wire::Inbox& inbox, int reader) {
  int64_t next = next_number(inbox, reader);
  for (; next < 0; next = next_number(inbox, reader)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return next;
}

}  // namespace transports
