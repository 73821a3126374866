// Connections of a bound ZeroMQ socket by their descriptors: how many there may be, and which have to go.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "wire/frame.hpp"
#include "wire/send_session.hpp"

namespace harmonics::zmq {

// Half of the descriptors that the process has left, 512 at most: a socket that runs out of them could neither accept
// nor refuse.
size_t most_connections();

class Connections {
 public:
  explicit Connections(size_t most = most_connections()) : most_(most) {}

  // The one to end, since there are too many, or 64 that have said nothing yet, and each may hold a message that is not
  // whole: one of these that came first, else this one; none: there is room.
  std::optional<int> accepted(int descriptor, wire::Time now);
  void heard(int descriptor, wire::Time now);
  void gone(int descriptor) { all_.erase(descriptor); }
  // Those that have said nothing since they came for longer than `first`, or since they spoke for longer than
  // `silence`. Each is named once.
  std::vector<int> silent(wire::Time now, wire::Time first, wire::Time silence);
  bool has_room() const { return all_.size() < most_; }

 private:
  struct Connection {
    wire::Time heard;  // or accepted
    bool spoke = false, ended = false;
  };
  size_t most_;
  std::map<int, Connection> all_;
};

}  // namespace harmonics::zmq
