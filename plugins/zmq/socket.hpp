// A socket of libzmq with the settings that every one of ours has, its context and its guard; and messages that are not copied.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "address.hpp"
#include "wire/frame.hpp"
#include "wire/owned_bytes.hpp"

namespace harmonics::zmq {

// What happened to connections, as far as it is of interest.
enum class Event { None, Connected, Disconnected, Refused, Foreign };  // Foreign: who is there does not speak ZeroMQ, or with other keys

class Socket {
 public:
  // Bound or about to connect. Errors: Stream when it cannot be bound.
  Socket(const Address& address, const std::string& identity, const wire::Limits& limits, int most_queued);
  ~Socket();
  Socket(const Socket&) = delete;

  std::string last_endpoint() const;
  // Waits for a message, for room when something is to be sent, an event, or wake(); at most so long.
  void wait(std::chrono::nanoseconds most, bool for_messages, bool for_room);
  void wake();  // from any thread

  // One part of a message; false: none is there, or there is no room.
  struct Part {
    wire::OwnedBytes bytes;
    bool more = false;
  };
  bool receive(Part& part);
  enum class Sent { Yes, Full, Nobody };
  Sent send(const wire::OwnedBytes& bytes, bool more = false);
  Event event();
  // What was sent may still leave within this time when the socket is closed.
  void linger(std::chrono::milliseconds most);

 private:
  void set(int option, int value);
  void set(int option, const std::string& value);
  void secure(const Address& address);
  void guard();
  void close();

  Security security_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  int wake_ = -1;
  std::atomic<bool> woken_{false};
  void* gate_ = nullptr;  // where libzmq asks who may come in
  std::thread guard_;
};

}  // namespace harmonics::zmq
