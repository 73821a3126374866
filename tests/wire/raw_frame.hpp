// Frames built byte by byte, without the encoder, as arbitrary input from a peer.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "wire/crc32c.hpp"
#include "wire/frame.hpp"

namespace harmonics::wire::testing {

using Bytes = std::vector<std::byte>;

// A Protobuf message, built by field number.
class Message {
 public:
  Message& number(uint32_t field, uint64_t value) { return varint(field << 3), varint(value), *this; }
  Message& text(uint32_t field, const std::string& value) {
    return varint(field << 3 | 2), varint(value.size()), bytes_ += value, *this;
  }
  Message& message(uint32_t field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

inline Message tensor(const std::string& name, uint32_t type, const std::vector<int64_t>& shape) {
  Message m;
  m.text(1, name).number(2, type);
  for (int64_t d : shape) m.number(3, static_cast<uint64_t>(d));
  return m;
}

template <typename T>
void put(Bytes& to, size_t at, T value) {
  std::memcpy(to.data() + at, &value, sizeof value);
}

// Sets the checksum for the bytes.
inline void seal(Bytes& frame) {
  const std::span<const std::byte> all(frame);
  put(frame, 20, crc32c(all.subspan(kPrefixBytes), crc32c(all.first(20))));
}

inline Bytes raw_frame(uint16_t kind, const std::string& header, const std::string& payload = "") {
  Bytes frame(kPrefixBytes);
  std::memcpy(frame.data(), "HXS1", 4);
  put(frame, 4, uint16_t{1});
  put(frame, 6, kind);
  put(frame, 8, static_cast<uint32_t>(header.size()));
  put(frame, 12, static_cast<uint64_t>(payload.size()));
  for (char c : header) frame.push_back(static_cast<std::byte>(c));
  frame.resize((frame.size() + 7) / 8 * 8);
  for (char c : payload) frame.push_back(static_cast<std::byte>(c));
  seal(frame);
  return frame;
}

// The frame of docs/wire.md: two samples, each an image of 2 by 2 bytes and its label.
struct Example {
  Frame frame;
  std::vector<uint8_t> image = {0, 64, 128, 255, 10, 20, 30, 40};
  std::vector<int64_t> label = {7, 3};
  Example() {
    frame.stream = "digits";
    frame.producer = "camera-1";
    frame.epoch = 5;
    frame.seq = 300;
    frame.count = 2;
    frame.tensors = {{"image", DType::U8, {2, 2}, std::as_bytes(std::span(image))},
                     {"label", DType::I64, {}, std::as_bytes(std::span(label))}};
  }
};

// Returns whether the frames are equal, ignoring the payload's address.
inline bool same(const Frame& a, const Frame& b) {
  if (a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const TensorPart &x = a.tensors[i], &y = b.tensors[i];
    if (x.name != y.name || x.dtype != y.dtype || x.sample != y.sample || x.classes != y.classes ||
        x.bytes.size() != y.bytes.size())
      return false;
    if (!x.bytes.empty() && std::memcmp(x.bytes.data(), y.bytes.data(), x.bytes.size()) != 0) return false;
  }
  return a.kind == b.kind && a.stream == b.stream && a.producer == b.producer && a.epoch == b.epoch &&
         a.session == b.session && a.seq == b.seq && a.count == b.count && a.limit_seq == b.limit_seq &&
         a.limit_bytes == b.limit_bytes && a.received_seq == b.received_seq && a.durable_seq == b.durable_seq &&
         a.acknowledgement == b.acknowledgement && a.max_frame_bytes == b.max_frame_bytes && a.code == b.code &&
         a.text == b.text && a.fresh == b.fresh && a.blocked == b.blocked;
}

}  // namespace harmonics::wire::testing
