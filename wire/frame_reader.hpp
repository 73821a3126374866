// Splits a byte stream, received in arbitrary pieces, into frames. Frames are not copied, except for the start of a
// frame that does not fit into its chunk.
#pragma once

#include <memory>

#include "wire/frame.hpp"
#include "wire/owned_bytes.hpp"

namespace harmonics::wire {

class FrameReader {
 public:
  explicit FrameReader(const Limits& limits = {}) : limits_(limits) {}

  // Returns space for the next bytes; the caller then reports how many arrived. Memory for a frame grows with the bytes
  // received, not with its announced size.
  std::span<std::byte> room();
  void arrived(size_t bytes) { end_ += bytes; }
  // Returns the next whole frame, not yet decoded; empty if more bytes are needed. Throws if the bytes do not begin a
  // frame; the stream cannot be read after that.
  OwnedBytes next();
  // Applies to later frames.
  void limit(const Limits& limits) { limits_ = limits; }
  // Bytes of an incomplete frame.
  size_t begun() const { return end_ - begin_; }

 private:
  Limits limits_;
  std::shared_ptr<std::byte[]> chunk_;     // shared with the frames that were returned
  size_t size_ = 0, begin_ = 0, end_ = 0;  // size of the chunk; range of bytes that arrived and were not returned
  size_t ahead_ = 0;                       // bytes to allocate next, by the last frame's size
};

}  // namespace harmonics::wire
