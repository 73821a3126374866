// A libzmq socket with the project's settings, its context and access control, and messages without copies.
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

// A connection event. Foreign: the peer does not speak ZeroMQ, or has other keys. Full: the system has no descriptor
// for a new connection.
struct Event {
  enum Kind { None, Accepted, Connected, Disconnected, Refused, Foreign, Full } kind = None;
  int descriptor = -1;  // of the connection, while it is accepted, connected or disconnected
};

class Socket {
 public:
  // Binds, or prepares to connect. Throws ErrorKind::Stream if it cannot be bound.
  Socket(const Address& address, const std::string& identity, const wire::Limits& limits, int most_queued);
  ~Socket();
  Socket(const Socket&) = delete;
  // Returns whether the process may open the descriptors of another socket. Without them libzmq ends the process.
  static bool has_descriptors();

  std::string last_endpoint() const;
  // Waits for a message, for room if there is something to send, for an event, or wake(), up to the given time.
  void wait(std::chrono::nanoseconds most, bool for_messages, bool for_room);
  void wake();  // from any thread

  // A message part; false: no message, or no room.
  struct Part {
    wire::OwnedBytes bytes;
    bool more = false;
    int descriptor = -1;  // of its connection; -1: unknown
  };
  bool receive(Part& part);
  enum class Sent { Yes, Full, Nobody };
  Sent send(const wire::OwnedBytes& bytes, bool more = false);
  Event event();
  // Returns the key of the last received message's sender; "": none.
  const wire::Key& sender_key() const { return key_; }
  // Closes a connection by its descriptor, if that still belongs to this socket.
  void hang_up(int descriptor) const;
  // Stops or resumes accepting; existing connections stay. Returns false on failure.
  bool listen(bool yes);
  // Sets the time for sent messages to leave when the socket is closed.
  void linger(std::chrono::milliseconds most);

 private:
  void set(int option, int value);
  void set(int option, const std::string& value);
  void secure(const Address& address);
  void guard();
  void close();

  Security security_;
  std::string endpoint_;  // bound address
  wire::Key key_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  int wake_ = -1;
  std::atomic<bool> woken_{false};
  void* gate_ = nullptr;  // receives libzmq's access requests
  std::thread guard_;
};

}  // namespace harmonics::zmq
