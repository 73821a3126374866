// The HXS/1 frame: one message between senders of samples and their receiver, and one record of a spool. docs/wire.md
// describes it byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics::wire {

enum class Kind : uint16_t {
  Hello = 1,
  Welcome = 2,
  Data = 3,
  Grant = 4,
  Resume = 5,
  Nack = 6,
  Ping = 7,
  Pong = 8,
  Barrier = 9,
  End = 10,
  Bye = 11,
  Error = 12,
};
const char* kind_name(Kind kind);  // "DATA"

// Numbered as in hxs.proto.
enum class Acknowledgement : uint32_t { None = 0, Received = 1, Durable = 2 };
enum class Code : uint32_t {
  None = 0,
  Malformed = 1,
  Credit = 2,
  NoSession = 3,
  Stale = 4,
  NotDurable = 5,
  Tensors = 6
};

// One tensor of every sample of a frame: count samples back to back, row-major, little-endian. Does not own the
// bytes.
struct TensorPart {
  std::string name;
  DType dtype = DType::F32;
  Shape sample;
  std::span<const std::byte> bytes;  // empty in HELLO, which has no samples
  uint32_t classes = 0;              // for integers: each value is below this; 0: unknown
};

// Fields as described in hxs.proto. Fields that a kind does not use keep these defaults.
struct Frame {
  Kind kind = Kind::Data;
  std::string stream, producer;
  uint64_t epoch = 0, session = 0, seq = 0;
  uint32_t count = 0;
  std::vector<TensorPart> tensors;
  uint64_t limit_seq = 0, limit_bytes = 0, received_seq = 0, durable_seq = 0;
  Acknowledgement acknowledgement = Acknowledgement::None;
  uint64_t max_frame_bytes = 0;
  Code code = Code::None;
  std::string text;
  bool fresh = false, blocked = false;
  uint64_t number = 0, sender = 0;

  // Returns the key for joining a sample of a DATA frame with other streams. `sample`: index in the frame.
  SampleNumber number_of(uint64_t sample) const;
};

// Returns a sender's identity, equal in every process. `epoch` is 0 if all incarnations of a sender continue its
// numbering.
uint64_t sender_identity(const std::string& stream, const std::string& producer, uint64_t epoch);

// Returns whether a type is an integer, whose values may be classes.
inline bool is_integer(DType dtype) { return dtype > DType::Bool && dtype < DType::F16; }

// Returns a description: "image u8 [28, 28], label i64 []".
std::string described(const std::vector<TensorPart>& tensors);
// Returns whether both have the same names, types and shapes in the same order.
bool alike(const std::vector<TensorPart>& a, const std::vector<TensorPart>& b);
// Returns the bytes of one sample over all its tensors, without padding between them. Credit counts these bytes.
uint64_t sample_bytes(const Frame& frame);

// Limits that a reader enforces before it allocates memory.
struct Limits {
  uint64_t frame_bytes = 16u << 20;
  uint32_t header_bytes = 32u << 10;
  uint32_t tensors = 64;
};
constexpr size_t kMostName = 255, kMostText = 4096;
constexpr uint32_t kMostClasses = 1u << 24;
// Returns the number of classes that a frame announces: for integer types, if known.
inline uint32_t classes_told(DType dtype, int64_t classes) {
  return wire::is_integer(dtype) && classes > 0 && classes <= kMostClasses ? static_cast<uint32_t>(classes) : 0;
}
// All sample numbers are below this.
constexpr uint64_t kMostSeq = uint64_t{1} << 62;

// The 24 bytes every frame begins with.
constexpr size_t kPrefixBytes = 24;
struct Prefix {
  Kind kind = Kind::Data;
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;
  uint32_t crc = 0;

  uint64_t payload_at() const { return (kPrefixBytes + header_bytes + 7) / 8 * 8; }
  uint64_t frame_bytes() const { return payload_at() + payload_bytes; }
};

// The three functions below throw ErrorKind::Stream with the position in the frame, the value found, and a remedy.

// Reads the first 24 bytes of `bytes`, which must hold at least as many. The prefix contains the frame's length.
Prefix read_prefix(std::span<const std::byte> bytes, const Limits& limits = {});

// Reads exactly one frame. Its tensors point into `bytes`, at multiples of 8 from the start.
Frame decode(std::span<const std::byte> bytes, const Limits& limits = {});

// An encoded frame: the bytes before the payload, then pieces of the caller's memory with zero padding between them.
// Valid while the frame's tensors are.
class Encoded {
 public:
  uint64_t size() const { return size_; }
  // Returns the pieces in order; together they are the frame.
  std::vector<std::span<const std::byte>> pieces() const;
  std::vector<std::byte> bytes() const;

 private:
  friend Encoded encode(const Frame& frame, const Limits& limits);
  std::vector<std::byte> head_;
  std::vector<std::span<const std::byte>> payload_;
  uint64_t size_ = 0;
};

// Throws on frames that decode would reject.
Encoded encode(const Frame& frame, const Limits& limits = {});

}  // namespace harmonics::wire
