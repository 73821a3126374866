// Frames out of a stream of bytes, wherever it is cut into pieces.
#pragma once

#include <memory>

#include "wire/frame.hpp"

namespace harmonics::wire {

class FrameReader {
 public:
  explicit FrameReader(const Limits& limits = {}) : limits_(limits) {}

  // Where the next bytes go; what a frame announces takes memory only as it arrives. Then say how many came.
  std::span<std::byte> room();
  void arrived(size_t bytes) { end_ += bytes; }
  // The next whole frame, not yet decoded; null: more has to arrive. Throws on what no frame begins with; nothing can be read from the
  // stream after that.
  std::shared_ptr<const std::vector<std::byte>> next();

 private:
  Limits limits_;
  std::vector<std::byte> bytes_;
  size_t begin_ = 0, end_ = 0;  // of what has arrived and was not given
};

}  // namespace harmonics::wire
