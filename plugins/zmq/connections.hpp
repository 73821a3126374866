// Tracks the connections of a bound ZeroMQ socket by descriptor, limits their number, and selects those to close.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "wire/frame.hpp"
#include "wire/send_session.hpp"

namespace harmonics::zmq {

// Returns half of the process's remaining descriptors, at most 512: a socket without descriptors can neither accept nor
// reject connections.
size_t most_connections();

class Connections {
 public:
  explicit Connections(size_t most = most_connections()) : most_(most) {}

  // Returns the connection to close if there are too many, or 64 that have sent nothing yet, each of which may hold an
  // incomplete message: one of the earliest of these, else this one. None: there is room.
  std::optional<int> accepted(int descriptor, wire::Time now);
  void heard(int descriptor, wire::Time now);
  void gone(int descriptor) { all_.erase(descriptor); }
  // Returns connections that have sent nothing for longer than `first` since they were accepted, or for longer than
  // `silence` since their last message. Each is returned once.
  std::vector<int> silent(wire::Time now, wire::Time first, wire::Time silence);
  bool has_room() const { return all_.size() < most_; }

 private:
  struct Connection {
    wire::Time heard;  // last message, or accepted
    bool spoke = false, ended = false;
  };
  size_t most_;
  std::map<int, Connection> all_;
};

}  // namespace harmonics::zmq
