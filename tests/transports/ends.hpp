// The ends of every transport behind one interface.
#pragma once

#include <atomic>
#include <exception>
#include <thread>

#include "wire/inbox.hpp"
#include "wire/outbox.hpp"

namespace transports {

using namespace harmonics;

class Receiving {
 public:
  virtual ~Receiving() = default;
  virtual wire::Inbox& inbox() = 0;
  std::string address;  // to send to, without the scheme
};
class Sending {
 public:
  virtual ~Sending() = default;
  virtual wire::Outbox& outbox() = 0;
};

// Lossless transports: "tcp", "unix", ...
std::vector<std::string> lossless();
// Transports that count losses: "zmq+pull", "zmq+sub".
std::vector<std::string> at_most_once();
// At a new address, or at the given one.
std::unique_ptr<Receiving> receive(const std::string& kind, const std::string& address = "",
                                   wire::InboxOptions options = {});
std::unique_ptr<Sending> send(const std::string& kind, const std::string& address, wire::OutboxOptions options);

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int64_t kSide = 28;

// Options of a sender of images whose first bytes are the sample's number, and of labels equal to it.
wire::OutboxOptions pictures(const std::string& name);
void push_picture(wire::Outbox& outbox, int64_t number);
void push_pictures(wire::Outbox& outbox, int64_t first, int64_t count);

// Runs work on a thread; the work must not fail.
class Worker {
 public:
  template <typename Work>
  explicit Worker(Work work)
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
  // Returns "" or the error.
  std::string end() {
    thread_.join();
    return error_;
  }

 private:
  std::string error_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Sends `count` images and ends.
std::unique_ptr<Worker> sending(const std::string& kind, const std::string& address, const std::string& name,
                                int64_t first, int64_t count);

}  // namespace transports
