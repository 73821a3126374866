// Converts the bytes of a frame to its fields and back.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include <harmonics/quantity.hpp>

#include "wire/crc32c.hpp"
#include "wire/data_codec.hpp"
#include "wire/header.hpp"

namespace harmonics::wire {
namespace {

constexpr uint32_t kMagic = 0x31535848;  // "HXS1"
constexpr uint16_t kVersion = 1;
constexpr size_t kCrcAt = 20;
constexpr std::byte kZeros[8] = {};

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <typename T>
void put(std::vector<std::byte>& to, size_t at, T value) {
  std::memcpy(to.data() + at, &value, sizeof value);
}

uint64_t bytes_of_one(const TensorPart& part) { return tensor_bytes(part.dtype, part.sample); }

size_t padding(uint64_t at) { return static_cast<size_t>((8 - at % 8) % 8); }

[[noreturn]] void refuse_at(uint64_t byte, const std::string& what, const std::string& remedy) {
  refuse(fmt::format("byte {} of the frame", byte), what, remedy);
}

void check_lengths(const Prefix& prefix, const Limits& limits) {
  if (prefix.header_bytes > limits.header_bytes)
    refuse_at(
        8, fmt::format("a header of {} bytes is announced, the limit is {}", prefix.header_bytes, limits.header_bytes),
        "use fewer tensors or shorter names");
  if (prefix.payload_bytes > limits.frame_bytes || prefix.frame_bytes() > limits.frame_bytes)
    refuse_at(12,
              fmt::format("a payload of {} bytes is announced, frames have at most {}", prefix.payload_bytes,
                          limits.frame_bytes),
              "send fewer samples in a frame, or let the receiver accept larger ones");
}

void check_zeros(std::span<const std::byte> bytes, uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end; ++at)
    if (bytes[at] != std::byte{0})
      refuse_at(at, fmt::format("padding byte 0x{:02x}", static_cast<unsigned>(bytes[at])),
                "pad to a multiple of 8 with zeros");
}

// Assigns each tensor its bytes. The payload must end with the last tensor. The sizes have been checked against the
// limits.
void place_tensors(Frame& frame, std::span<const std::byte> bytes, const Prefix& prefix) {
  uint64_t at = prefix.payload_at();
  const bool carries = frame.kind == Kind::Data || frame.kind == Kind::Barrier;
  for (size_t i = 0; i < frame.tensors.size() && carries; ++i) {
    TensorPart& part = frame.tensors[i];
    const uint64_t one = bytes_of_one(part);
    const uint64_t begin = at + padding(at);
    if (begin > bytes.size() || one > (bytes.size() - begin) / frame.count)
      refuse(fmt::format("payload, tensors[{}] '{}'", i, part.name),
             fmt::format("{} of {} cannot fit into the frame, which ends at byte {}", quantity(frame.count, "sample"),
                         quantity(one, "byte"), bytes.size()),
             "announce the number and shape of the samples that are sent");
    check_zeros(bytes, at, begin);
    at = begin + one * frame.count;
    part.bytes = bytes.subspan(begin, one * frame.count);
  }
  if (at != bytes.size())
    refuse_at(at,
              fmt::format("{} more than the tensors of this {} frame have", quantity(bytes.size() - at, "byte"),
                          kind_name(frame.kind)),
              "send only what the header describes");
}

std::vector<std::byte> head_of(const Frame& frame, const Limits& limits) {
  std::vector<std::byte> head(kPrefixBytes);
  write_header(frame, head);
  const uint64_t header_bytes = head.size() - kPrefixBytes;
  if (header_bytes > limits.header_bytes)
    refuse("header", fmt::format("{} bytes, the limit is {}", header_bytes, limits.header_bytes),
           "use fewer tensors or shorter names");
  put(head, 0, kMagic);
  put(head, 4, kVersion);
  put(head, 6, static_cast<uint16_t>(frame.kind));
  put(head, 8, static_cast<uint32_t>(header_bytes));
  head.resize(head.size() + padding(head.size()));
  return head;
}

// Printable ASCII: such bytes come from CSV, JSON or HTTP.
bool is_text(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte b) { return b >= std::byte{0x20} && b < std::byte{0x7F}; });
}
std::string text_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += static_cast<char>(b);
  return text;
}

}  // namespace

Prefix read_prefix(std::span<const std::byte> bytes, const Limits& limits) {
  if (bytes.size() < kPrefixBytes)
    refuse_at(bytes.size(), fmt::format("the end, but a frame begins with {} bytes", kPrefixBytes),
              "send whole frames");
  if (const auto magic = number_at<uint32_t>(bytes, 0); magic != kMagic && is_text(bytes.first(4)))
    refuse_at(0,
              fmt::format("the text '{}', but a frame begins with 0x{:08x} (\"HXS1\"); other formats are named: "
                          "format=csv, format=jsonl",
                          text_of(bytes.first(4)), kMagic),
              "use HXS/1: see docs/wire.md");
  else if (magic != kMagic)
    refuse_at(0, fmt::format("0x{:08x}, but a frame begins with 0x{:08x} (\"HXS1\")", magic, kMagic),
              "use HXS/1: see docs/wire.md");
  if (const auto version = number_at<uint16_t>(bytes, 4); version != kVersion)
    refuse_at(4, fmt::format("version {}, but this program reads version {}", version, kVersion),
              "use releases with the same version");
  Prefix prefix;
  prefix.kind = static_cast<Kind>(number_at<uint16_t>(bytes, 6));
  if (!kind_name(prefix.kind))
    refuse_at(6, fmt::format("there is no kind {} of frames", static_cast<unsigned>(prefix.kind)),
              "use a kind of docs/wire.md");
  prefix.header_bytes = number_at<uint32_t>(bytes, 8);
  prefix.payload_bytes = number_at<uint64_t>(bytes, 12);
  prefix.crc = number_at<uint32_t>(bytes, kCrcAt);
  check_lengths(prefix, limits);
  return prefix;
}

namespace {

// Checks the lengths and the checksum of one whole frame.
Prefix checked_prefix(std::span<const std::byte> bytes, const Limits& limits) {
  const Prefix prefix = read_prefix(bytes, limits);
  if (prefix.frame_bytes() != bytes.size())
    refuse_at(8, fmt::format("lengths of a frame of {} bytes, but there are {}", prefix.frame_bytes(), bytes.size()),
              "send whole frames");
  const uint32_t crc = crc32c(bytes.subspan(kPrefixBytes), crc32c(bytes.first(kCrcAt)));
  if (crc != prefix.crc)
    refuse_at(kCrcAt, fmt::format("the checksum 0x{:08x}, but the bytes have 0x{:08x}", prefix.crc, crc),
              "the frame was damaged in transit: send it again");
  return prefix;
}

}  // namespace

Frame decode(std::span<const std::byte> bytes, const Limits& limits) {
  const Prefix prefix = checked_prefix(bytes, limits);
  Frame frame = read_header(prefix.kind, bytes.subspan(kPrefixBytes, prefix.header_bytes), limits);
  check_fields(frame, limits);
  check_zeros(bytes, kPrefixBytes + prefix.header_bytes, prefix.payload_at());
  place_tensors(frame, bytes, prefix);
  return frame;
}

Encoded encode(const Frame& frame, const Limits& limits) {
  check_fields(frame, limits);
  Encoded to;
  to.head_ = head_of(frame, limits);
  to.size_ = to.head_.size();
  for (const TensorPart& part : frame.tensors) {
    const uint64_t one = bytes_of_one(part);
    if (part.bytes.size() % one != 0 || part.bytes.size() / one != frame.count)
      refuse(fmt::format("payload, '{}'", part.name),
             fmt::format("{} for {} of shape {}", quantity(part.bytes.size(), "byte"), quantity(frame.count, "sample"),
                         part.sample.str()),
             fmt::format("give {} bytes a sample", one));
    if (part.bytes.empty()) continue;
    if (const size_t gap = padding(to.size_)) to.payload_.emplace_back(kZeros, gap);
    to.payload_.push_back(part.bytes);
    to.size_ += padding(to.size_) + part.bytes.size();
  }
  Prefix prefix;
  prefix.payload_bytes = to.size_ - to.head_.size();
  prefix.header_bytes = number_at<uint32_t>(to.head_, 8);
  check_lengths(prefix, limits);
  put(to.head_, 12, prefix.payload_bytes);
  const std::span<const std::byte> head(to.head_);
  uint32_t crc = crc32c(head.subspan(kPrefixBytes), crc32c(head.first(kCrcAt)));
  for (const auto& piece : to.payload_) crc = crc32c(piece, crc);
  put(to.head_, kCrcAt, crc);
  return to;
}

std::vector<std::span<const std::byte>> Encoded::pieces() const {
  std::vector<std::span<const std::byte>> all{head_};
  all.insert(all.end(), payload_.begin(), payload_.end());
  return all;
}

std::vector<std::byte> Encoded::bytes() const {
  std::vector<std::byte> all;
  all.reserve(size_);
  for (const auto& piece : pieces()) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

namespace {

// The tags of seq and count in hxs.proto, and the maximum size of the tags and their numbers.
constexpr char kSeqTag = 5 << 3, kCountTag = 6 << 3;
constexpr size_t kMostNumbers = 1 + 10 + 1 + 5;

std::string header_text(const Frame& frame) {
  std::vector<std::byte> bytes;
  write_header(frame, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns a frame with the fields that all DATA frames of this sender share.
Frame usual(const Frame& like) {
  Frame frame;
  frame.stream = like.stream;
  frame.producer = like.producer;
  frame.epoch = like.epoch;
  frame.tensors = like.tensors;
  for (TensorPart& part : frame.tensors) part.bytes = {};
  return frame;
}

// Returns the header bytes before and after seq and count in such frames.
std::pair<std::string, std::string> around_numbers(const Frame& like) {
  Frame frame = usual(like);
  const std::string all = header_text(frame);
  frame.tensors.clear();
  std::string before = header_text(frame);
  return {before, all.substr(before.size())};
}

char* put_varint(char* to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
  *to++ = static_cast<char>(value);
  return to;
}
// Reads a minimally encoded varint; longer encodings are rejected.
bool take_varint(const char*& at, const char* end, uint64_t& value) {
  value = 0;
  for (int shift = 0; at != end && shift < 63; shift += 7) {
    const auto byte = static_cast<uint8_t>(*at++);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return byte != 0 || shift == 0;
  }
  return false;
}

}  // namespace

DataEncoder::DataEncoder(const Frame& like) { std::tie(before_, behind_) = around_numbers(like); }

size_t DataEncoder::most_head_bytes() const {
  const size_t bytes = kPrefixBytes + before_.size() + kMostNumbers + behind_.size();
  return bytes + padding(bytes);
}

size_t DataEncoder::write_head(uint64_t seq, uint32_t count, std::byte* payload, uint64_t payload_bytes) const {
  char numbers[kMostNumbers];
  char* end = numbers;
  if (seq > 0) *end++ = kSeqTag, end = put_varint(end, seq);
  if (count > 0) *end++ = kCountTag, end = put_varint(end, count);
  const size_t header = before_.size() + static_cast<size_t>(end - numbers) + behind_.size(),
               size = kPrefixBytes + header + padding(kPrefixBytes + header);
  std::byte* const first = payload - size;
  std::byte* to = first;
  const auto append = [&to](const void* from, size_t bytes) { std::memcpy(to, from, bytes), to += bytes; };
  const uint16_t version = kVersion, kind = static_cast<uint16_t>(Kind::Data);
  const auto header_bytes = static_cast<uint32_t>(header);
  append(&kMagic, 4), append(&version, 2), append(&kind, 2), append(&header_bytes, 4), append(&payload_bytes, 8);
  to += 4;
  append(before_.data(), before_.size()), append(numbers, static_cast<size_t>(end - numbers)),
      append(behind_.data(), behind_.size());
  std::memset(to, 0, static_cast<size_t>(payload - to));
  const std::span<const std::byte> frame(first, size + payload_bytes);
  const uint32_t crc = crc32c(frame.subspan(kPrefixBytes), crc32c(frame.first(kCrcAt)));
  std::memcpy(first + kCrcAt, &crc, sizeof crc);
  return size;
}

Frame FrameDecoder::decode(std::span<const std::byte> bytes, const Limits& limits) {
  const Prefix prefix = checked_prefix(bytes, limits);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, prefix.header_bytes);
  if (prefix.kind == Kind::Data && !before_.empty() && header.size() > before_.size() + behind_.size() &&
      header.starts_with(before_) && header.ends_with(behind_)) {
    const char *at = header.data() + before_.size(), *const end = header.data() + header.size() - behind_.size();
    uint64_t seq = 0, count = 0;
    const bool numbered = *at != kSeqTag || (take_varint(++at, end, seq) && seq > 0);
    if (numbered && at != end && *at == kCountTag && take_varint(++at, end, count) && at == end && count > 0 &&
        count <= UINT32_MAX && seq <= kMostSeq && seq + count <= kMostSeq) {
      Frame frame = last_;
      frame.seq = seq;
      frame.count = static_cast<uint32_t>(count);
      check_zeros(bytes, kPrefixBytes + prefix.header_bytes, prefix.payload_at());
      place_tensors(frame, bytes, prefix);
      return frame;
    }
  }
  Frame frame = wire::decode(bytes, limits);
  if (frame.kind != Kind::Data) return frame;
  last_ = usual(frame);
  // Only headers encoded as here take the fast path. Other field orders and unknown fields are parsed in full every
  // time.
  std::tie(before_, behind_) = around_numbers(frame);
  return frame;
}

}  // namespace harmonics::wire
