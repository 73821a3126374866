// Codec for the DATA frames of one sender, which differ only in their numbers: encodes and decodes the shared part
// once.
#pragma once

#include <string>

#include "wire/frame.hpp"

namespace harmonics::wire {

class DataEncoder {
 public:
  // Encodes frames with this stream, producer, epoch and tensors.
  explicit DataEncoder(const Frame& like);

  // Returns the maximum number of bytes before the payload.
  size_t most_head_bytes() const;
  // Writes the bytes before the payload so that they end at `payload`, which `payload_bytes` follow. Returns their
  // number.
  size_t write_head(uint64_t seq, uint32_t count, std::byte* payload, uint64_t payload_bytes) const;

 private:
  std::string before_, behind_;  // header bytes around seq and count
};

// Equivalent to decode(), but faster for a frame that resembles the last DATA frame.
class FrameDecoder {
 public:
  Frame decode(std::span<const std::byte> bytes, const Limits& limits = {});

 private:
  Frame last_;  // without samples
  std::string before_, behind_;
};

}  // namespace harmonics::wire
