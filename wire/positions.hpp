// Where the senders of a stream stand, as text: what a checkpoint keeps and a receiver in another process goes on from.
#pragma once

#include <map>
#include <string>

#include "wire/receive_session.hpp"

namespace harmonics::wire {

struct SenderName {
  std::string stream, producer;
  auto operator<=>(const SenderName&) const = default;
};

struct Positions {
  std::map<SenderName, Position> senders;
  std::vector<TensorPart> tensors;  // of every sample, without bytes
};

// One line of printable characters, which the other reads; "" of no senders and no tensors.
std::string positions_text(const Positions& positions);
// Errors: Stream with the place and what was expected.
Positions read_positions(const std::string& text);

}  // namespace harmonics::wire
