// The positions of a stream's senders as text, stored in checkpoints. A receiver in another process resumes from it.
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

// Returns one line of printable characters, which read_positions parses; "" without senders and tensors.
std::string positions_text(const Positions& positions);
// Throws ErrorKind::Stream with the offset and the expected text.
Positions read_positions(const std::string& text);

}  // namespace harmonics::wire
