// DATA frames of one sender are alike but for their numbers: what they share is written and read once.
#pragma once

#include <string>

#include "wire/frame.hpp"

namespace harmonics::wire {

class DataEncoder {
 public:
  // Of frames with this stream, producer, epoch and tensors.
  explicit DataEncoder(const Frame& like);

  // The most bytes that stand before the payload.
  size_t most_head_bytes() const;
  // Writes what stands before the payload so that it ends at `payload`, behind which `payload_bytes` lie. How many
  // bytes it has.
  size_t write_head(uint64_t seq, uint32_t count, std::byte* payload, uint64_t payload_bytes) const;

 private:
  std::string before_, behind_;  // of seq and count in the header
};

// Reads as decode does, and faster what comes like the last DATA frame.
class FrameDecoder {
 public:
  Frame decode(std::span<const std::byte> bytes, const Limits& limits = {});

 private:
  Frame last_;  // without samples
  std::string before_, behind_;
};

}  // namespace harmonics::wire
