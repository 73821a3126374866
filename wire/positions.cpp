// Format: hxs1 tensor NAME TYPE DIMS... ; sender STREAM PRODUCER EPOCH SEQ [ended] ; ... Names are percent-encoded.
#include "wire/positions.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "wire/header.hpp"

namespace harmonics::wire {
namespace {

constexpr const char* kHexDigits = "0123456789ABCDEF";

std::string encoded(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && c != '%' && c != ';')
      text += c;
    else
      text += {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  }
  return text;
}

class PositionReader {
 public:
  explicit PositionReader(const std::string& text) : in_(text) {}

  bool more() { return static_cast<bool>(in_ >> word_); }
  const std::string& word(const char* expected) {
    if (!more()) fail(expected, "the end");
    return word_;
  }
  uint64_t number(const char* expected, uint64_t most) {
    word(expected);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(word_.data(), word_.data() + word_.size(), value);
    if (error != std::errc() || end != word_.data() + word_.size() || value > most) fail(expected, "'" + word_ + "'");
    return value;
  }
  std::string name(const char* expected) {
    word(expected);
    std::string name;
    for (size_t i = 0; i < word_.size(); ++i) {
      if (word_[i] != '%') {
        name += word_[i];
        continue;
      }
      int value = 0;
      const auto [end, error] =
          std::from_chars(word_.data() + i + 1, word_.data() + std::min(i + 3, word_.size()), value, 16);
      if (error != std::errc() || end != word_.data() + i + 3) fail(expected, "'" + word_ + "'");
      name += static_cast<char>(value);
      i += 2;
    }
    if (name.size() > kMostName) fail(expected, fmt::format("{} bytes", name.size()));
    return name;
  }
  const std::string& last() const { return word_; }
  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    refuse("position of a stream", "expected " + expected + ", found " + found,
           "give what this library wrote: the checkpoint may be damaged");
  }

 private:
  std::istringstream in_;
  std::string word_;
};

void read_tensor(PositionReader& in, Positions& to) {
  TensorPart part;
  part.name = in.name("a tensor's name");
  part.dtype = static_cast<DType>(in.number("an element type", static_cast<uint64_t>(DType::F64)));
  const uint64_t rank = in.number("a number of dimensions", HX_MAX_RANK);
  std::vector<int64_t> dims;
  for (uint64_t i = 0; i < rank; ++i) dims.push_back(static_cast<int64_t>(in.number("a dimension", INT64_MAX)));
  part.sample = Shape(dims.data(), dims.data() + dims.size());
  to.tensors.push_back(std::move(part));
}

void read_sender(PositionReader& in, Positions& to) {
  SenderName name;
  name.stream = in.name("a stream's name");
  name.producer = in.name("a sender's name");
  Position position;
  position.epoch = in.number("an incarnation", UINT64_MAX);
  position.seq = in.number("a sample's number", kMostSeq);
  position.ended = in.number("0 or 1", 1) == 1;
  if (!to.senders.emplace(std::move(name), position).second) in.fail("another sender", "the same again");
}

}  // namespace

std::string positions_text(const Positions& positions) {
  if (positions.senders.empty() && positions.tensors.empty()) return "";
  std::string text = "hxs1";
  for (const TensorPart& part : positions.tensors) {
    text +=
        fmt::format(" ; tensor {} {} {}", encoded(part.name), static_cast<uint32_t>(part.dtype), part.sample.rank());
    for (const int64_t dim : part.sample) text += fmt::format(" {}", dim);
  }
  for (const auto& [name, at] : positions.senders)
    text += fmt::format(" ; sender {} {} {} {} {}", encoded(name.stream), encoded(name.producer), at.epoch, at.seq,
                        at.ended ? 1 : 0);
  return text;
}

Positions read_positions(const std::string& text) {
  Positions positions;
  if (text.empty()) return positions;
  PositionReader in(text);
  if (in.word("'hxs1'") != "hxs1") in.fail("'hxs1'", "'" + in.last().substr(0, 40) + "'");
  while (in.more()) {
    if (in.last() != ";") in.fail("';'", "'" + in.last() + "'");
    const std::string what = in.word("'tensor' or 'sender'");
    if (what == "tensor")
      read_tensor(in, positions);
    else if (what == "sender")
      read_sender(in, positions);
    else
      in.fail("'tensor' or 'sender'", "'" + what + "'");
  }
  return positions;
}

}  // namespace harmonics::wire
