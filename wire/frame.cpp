#include "wire/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include <harmonics/quantity.hpp>

#include "wire/header.hpp"

namespace harmonics::wire {
namespace {

// Returns the size in bytes of the first UTF-8 character; 0 if it is invalid.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Rejects overlong encodings, surrogate halves, and values beyond the last code point.
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
      (first == 0xF4 && second > 0x8F))
    return 0;
  return size;
}

void check_text(const std::string& place, const std::string& text, size_t most, bool lines) {
  if (text.size() > most)
    refuse(place, fmt::format("{} bytes", text.size()), fmt::format("it has at most {} bytes", most));
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const size_t size = character_bytes(std::string_view(text).substr(i));
    if (size == 0) refuse(place, "bytes that are not UTF-8", "write texts in UTF-8");
    i += size;
    if ((byte < 0x20 && !(lines && (c == '\n' || c == '\t'))) || byte == 0x7f)
      refuse(place, fmt::format("the control character 0x{:02x}", byte), "leave control characters out");
  }
}

void check_name(const std::string& place, const std::string& name) {
  if (name.empty()) refuse(place, "no name", "give it a name");
  check_text(place, name, kMostName, false);
}

void check_number(const char* field, uint64_t seq) {
  if (seq > kMostSeq)
    refuse(fmt::format("header, {}", field), fmt::format("the number {}", seq),
           fmt::format("samples have numbers below {}", kMostSeq));
}

// Checks that a sample has at most `most` bytes, so that no product overflows.
void check_shape(const TensorPart& part, size_t i, uint64_t most) {
  if (is_stored(part.dtype))
    refuse(fmt::format("header, tensors[{}] '{}'", i, part.name),
           fmt::format("samples of {}, a stored type", element_type(part.dtype).name),
           "send f32 or another plain type");
  uint64_t bytes = element_bytes(part.dtype);
  for (int64_t dim : part.sample) {
    if (dim < 1)
      refuse(fmt::format("header, tensors[{}] '{}'", i, part.name), fmt::format("the shape {}", part.sample.str()),
             "every dimension of a sample is at least 1");
    if (static_cast<uint64_t>(dim) > most / bytes)
      refuse(fmt::format("header, tensors[{}] '{}'", i, part.name),
             fmt::format("samples of shape {}, more than the {} bytes a frame may have", part.sample.str(), most),
             "send smaller samples, or let the receiver accept larger frames");
    bytes *= static_cast<uint64_t>(dim);
  }
}

void check_tensors(const Frame& frame, const Limits& limits) {
  if (frame.tensors.size() > limits.tensors)
    refuse("header, tensors", fmt::format("{} tensors", frame.tensors.size()),
           fmt::format("a frame has at most {}", limits.tensors));
  for (size_t i = 0; i < frame.tensors.size(); ++i) {
    const TensorPart& part = frame.tensors[i];
    check_name(fmt::format("header, tensors[{}].name", i), part.name);
    for (size_t j = 0; j < i; ++j)
      if (frame.tensors[j].name == part.name)
        refuse(fmt::format("header, tensors[{}].name", i), fmt::format("a second tensor '{}'", part.name),
               "give every tensor its own name");
    check_shape(part, i, limits.frame_bytes);
    if (part.classes > 0 && (part.classes > kMostClasses || !is_integer(part.dtype)))
      refuse(fmt::format("header, tensors[{}] '{}'", i, part.name),
             fmt::format("{} classes of {}", part.classes, is_integer(part.dtype) ? "whole numbers" : "other numbers"),
             fmt::format("only whole numbers are classes, of at most {}", kMostClasses));
  }
}

void check_samples(const Frame& frame, const Limits& limits) {
  const bool data = frame.kind == Kind::Data;
  if (data && frame.count == 0)
    refuse("header, count", "a DATA frame without samples", "send at least one sample in a frame");
  if (data && frame.tensors.empty())
    refuse("header, tensors", "a DATA frame without tensors", "name at least one tensor");
  if (frame.kind == Kind::Barrier && frame.count != (frame.tensors.empty() ? 0 : 1))
    refuse("header, count", quantity(frame.count, "sample") + " in a BARRIER frame",
           "a barrier has one position, or none");
  if (!data && frame.kind != Kind::Barrier && frame.count != 0)
    refuse("header, count", fmt::format("{} in a {} frame", quantity(frame.count, "sample"), kind_name(frame.kind)),
           "send samples in DATA frames");
  if (!data && frame.kind != Kind::Hello && frame.kind != Kind::Barrier && !frame.tensors.empty())
    refuse("header, tensors",
           fmt::format("{} in a {} frame", quantity(frame.tensors.size(), "tensor"), kind_name(frame.kind)),
           "only DATA and HELLO name tensors");
  check_tensors(frame, limits);
  check_number("seq", frame.seq);
  check_number("seq", frame.seq + frame.count);
  check_number("number", frame.number);
}

}  // namespace

uint64_t sender_identity(const std::string& stream, const std::string& producer, uint64_t epoch) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto take = [&](unsigned char c) { hash = (hash ^ c) * 0x100000001b3; };
  for (const std::string* name : {&stream, &producer}) {
    for (const char c : *name) take(static_cast<unsigned char>(c));
    take(0);
  }
  for (int i = 0; i < 8; ++i) take(static_cast<unsigned char>(epoch >> 8 * i));
  return hash;
}

SampleNumber Frame::number_of(uint64_t sample) const {
  if (sender != 0) return {number + sample, sender};
  return {seq + sample, sender_identity(stream, producer, 0)};
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::Hello:
      return "HELLO";
    case Kind::Welcome:
      return "WELCOME";
    case Kind::Data:
      return "DATA";
    case Kind::Grant:
      return "GRANT";
    case Kind::Resume:
      return "RESUME";
    case Kind::Nack:
      return "NACK";
    case Kind::Ping:
      return "PING";
    case Kind::Pong:
      return "PONG";
    case Kind::Barrier:
      return "BARRIER";
    case Kind::End:
      return "END";
    case Kind::Bye:
      return "BYE";
    case Kind::Error:
      return "ERROR";
  }
  return nullptr;
}

void refuse(const std::string& place, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Stream, place + ": " + what).note(remedy);
}

void check_fields(const Frame& frame, const Limits& limits) {
  check_name("header, stream", frame.stream);
  check_name("header, producer", frame.producer);
  check_samples(frame, limits);
  check_number("limit_seq", frame.limit_seq);
  check_number("received_seq", frame.received_seq);
  check_number("durable_seq", frame.durable_seq);
  check_text("header, text", frame.text, kMostText, true);
}

std::string described(const std::vector<TensorPart>& tensors) {
  std::string text;
  for (const TensorPart& part : tensors)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", part.name, element_type(part.dtype).name,
                        part.sample.str());
  return text.empty() ? "no tensors" : text;
}

bool alike(const std::vector<TensorPart>& a, const std::vector<TensorPart>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TensorPart& x, const TensorPart& y) {
    return x.name == y.name && x.dtype == y.dtype && x.sample == y.sample;
  });
}

uint64_t sample_bytes(const Frame& frame) {
  uint64_t bytes = 0;
  for (const TensorPart& part : frame.tensors) bytes += tensor_bytes(part.dtype, part.sample);
  return bytes;
}

}  // namespace harmonics::wire
