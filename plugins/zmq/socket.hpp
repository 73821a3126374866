// A socket of libzmq with the settings that every one of ours has, its context and its guard; and messages that are not
// copied.
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

// What happened to connections, as far as it is of interest. Foreign: who is there does not speak ZeroMQ, or with other
// keys; Full: the system has no descriptor for one that came.
struct Event {
  enum Kind { None, Accepted, Connected, Disconnected, Refused, Foreign, Full } kind = None;
  int descriptor = -1;  // of the connection, while it is accepted, connected or disconnected
};

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
    int descriptor = -1;  // of the connection that it came by; -1: not known
  };
  bool receive(Part& part);
  enum class Sent { Yes, Full, Nobody };
  Sent send(const wire::OwnedBytes& bytes, bool more = false);
  Event event();
  // The key of who sent the last message that was received; "": it has none.
  const wire::Key& sender_key() const { return key_; }
  // Ends a connection by its descriptor, if it is still one of this socket's.
  void hang_up(int descriptor) const;
  // Not listening, nobody comes in; those who are there go on. False: it is not done.
  bool listen(bool yes);
  // What was sent may still leave within this time when the socket is closed.
  void linger(std::chrono::milliseconds most);

 private:
  void set(int option, int value);
  void set(int option, const std::string& value);
  void secure(const Address& address);
  void guard();
  void close();

  Security security_;
  std::string endpoint_;  // bound to
  wire::Key key_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  int wake_ = -1;
  std::atomic<bool> woken_{false};
  void* gate_ = nullptr;  // where libzmq asks who may come in
  std::thread guard_;
};

}  // namespace harmonics::zmq
