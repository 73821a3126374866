// Frames out of a stream of bytes, wherever it is cut into pieces. They stay where they were read to: nothing is copied
// but the begin of a frame that did not fit.
#pragma once

#include <memory>

#include "wire/frame.hpp"
#include "wire/owned_bytes.hpp"

namespace harmonics::wire {

class FrameReader {
 public:
  explicit FrameReader(const Limits& limits = {}) : limits_(limits) {}

  // Where the next bytes go; what a frame announces takes memory only as it arrives. Then say how many came.
  std::span<std::byte> room();
  void arrived(size_t bytes) { end_ += bytes; }
  // The next whole frame, not yet decoded; none: more has to arrive. Throws on what no frame begins with; nothing can
  // be read from the stream after that.
  OwnedBytes next();
  // Of frames from now on.
  void limit(const Limits& limits) { limits_ = limits; }
  // Bytes of a frame that has not arrived as a whole.
  size_t begun() const { return end_ - begin_; }

 private:
  Limits limits_;
  std::shared_ptr<std::byte[]> chunk_;     // shared with the frames that were given
  size_t size_ = 0, begin_ = 0, end_ = 0;  // of the chunk; of what has arrived and was not given
  size_t ahead_ = 0;                       // to be asked for by the last frame's size
};

}  // namespace harmonics::wire
