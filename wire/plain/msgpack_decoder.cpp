// Decodes MessagePack (msgpack.org, 2013): values back to back; maps, arrays and numbers, and the arrays of
// msgpack-numpy.
#include <bit>
#include <cstring>

#include "formats/npy.hpp"
#include "wire/plain/held_bytes.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {
namespace {

constexpr size_t kMostNesting = 32;

// The decoded first bytes of a value.
struct Head {
  enum Kind : uint8_t { Nil, Truth, Whole, Real, Text, Bytes, Array, Map, Extension, Unknown } kind = Unknown;
  size_t bytes = 0;     // of the head; may exceed the available bytes
  uint64_t length = 0;  // bytes of texts, binaries and extensions; elements of arrays, pairs of maps
  double number = 0;
};

class Bytes {
 public:
  explicit Bytes(std::string_view text) : text_(text) {}
  bool has(size_t n) const { return text_.size() >= n; }
  uint64_t whole(size_t at, size_t n) const {
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) value = value << 8 | static_cast<uint8_t>(text_[at + i]);
    return value;
  }

 private:
  std::string_view text_;
};

Head with_length(Head::Kind kind, const Bytes& in, size_t width, size_t more = 0) {
  Head head{kind, 1 + width + more, 0, 0};
  if (in.has(1 + width)) head.length = in.whole(1, width);
  return head;
}
Head of_number(const Bytes& in, size_t width, bool is_signed) {
  Head head{Head::Whole, 1 + width, 0, 0};
  if (!in.has(1 + width)) return head;
  const uint64_t value = in.whole(1, width);
  const auto shift = static_cast<unsigned>(64 - 8 * width);
  head.number =
      is_signed ? static_cast<double>(static_cast<int64_t>(value << shift) >> shift) : static_cast<double>(value);
  return head;
}

Head head_of(std::string_view text) {
  const Bytes in(text);
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {Head::Whole, 1, 0, static_cast<double>(first)};
  if (first >= 0xe0) return {Head::Whole, 1, 0, static_cast<double>(static_cast<int8_t>(first))};
  if (first < 0x90) return {Head::Map, 1, first & 0x0fu, 0};
  if (first < 0xa0) return {Head::Array, 1, first & 0x0fu, 0};
  if (first < 0xc0) return {Head::Text, 1, first & 0x1fu, 0};
  switch (first) {
    case 0xc0:
      return {Head::Nil, 1, 0, 0};
    case 0xc2:
      return {Head::Truth, 1, 0, 0};
    case 0xc3:
      return {Head::Truth, 1, 0, 1};
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return with_length(Head::Bytes, in, size_t{1} << (first - 0xc4));
    case 0xc7:
    case 0xc8:
    case 0xc9:
      return with_length(Head::Extension, in, size_t{1} << (first - 0xc7), 1);
    case 0xca: {
      Head head{Head::Real, 5, 0, 0};
      if (in.has(5)) head.number = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(in.whole(1, 4))));
      return head;
    }
    case 0xcb: {
      Head head{Head::Real, 9, 0, 0};
      if (in.has(9)) head.number = std::bit_cast<double>(in.whole(1, 8));
      return head;
    }
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
      return of_number(in, size_t{1} << (first - 0xcc), false);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
      return of_number(in, size_t{1} << (first - 0xd0), true);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return {Head::Extension, 2, uint64_t{1} << (first - 0xd4), 0};
    case 0xd9:
    case 0xda:
    case 0xdb:
      return with_length(Head::Text, in, size_t{1} << (first - 0xd9));
    case 0xdc:
    case 0xdd:
      return with_length(Head::Array, in, first == 0xdc ? 2 : 4);
    case 0xde:
    case 0xdf:
      return with_length(Head::Map, in, first == 0xde ? 2 : 4);
    default:
      return {};
  }
}

// Finds the end of a value that arrives in any number of pieces. Memory does not depend on declared lengths.
class ValueScanner {
 public:
  enum class Found { More, Whole, Broken };
  Found scan(std::string_view text, std::string& reason) {
    while (true) {
      while (!left_.empty() && left_.back() == 0) left_.pop_back();
      if (begun_ && left_.empty()) return at_ <= text.size() ? Found::Whole : Found::More;
      if (at_ >= text.size()) return Found::More;
      const Head head = head_of(text.substr(at_));
      if (head.kind == Head::Unknown) return reason = "is not MessagePack: byte 0xc1", Found::Broken;
      if (head.bytes > text.size() - at_) return Found::More;
      const uint64_t inner = head.kind == Head::Map ? 2 * head.length : head.kind == Head::Array ? head.length : 0;
      at_ += head.bytes;
      if (inner == 0 && head.kind != Head::Array && head.kind != Head::Map) at_ += head.length;
      if (at_ > kMostRecord || inner > kMostRecord || head.length > kMostRecord)
        return reason = "is longer than " + std::to_string(kMostRecord) + " bytes", Found::Broken;
      begun_ = true;
      if (!left_.empty()) --left_.back();
      if (inner > 0) left_.push_back(inner);
      if (left_.size() > kMostNesting)
        return reason = "is nested deeper than " + std::to_string(kMostNesting), Found::Broken;
    }
  }
  size_t end() const { return at_; }
  void restart() { *this = {}; }

 private:
  size_t at_ = 0;
  bool begun_ = false;
  std::vector<uint64_t> left_;  // elements still missing from each open value
};

class MsgpackDecoder final : public RecordDecoder {
 public:
  explicit MsgpackDecoder(const DecoderOptions& options) : batches_(options.batches) {}

  void arrived(std::span<const std::byte> bytes) override { held_.add(bytes); }
  void flush() override { flushed_ = true; }
  size_t held() const override { return held_.size(); }
  std::string_view raw() override { return raw_; }

  Next next(Record& record, std::string& reason) override {
    if (!failure_.empty()) return reason = failure_, Next::Broken;
    if (batch_left_ > 0) return next_of_batch(record, reason);
    while (held_.size() > 0) {
      std::string what;
      const auto found = scanner_.scan(held_.rest(), what);
      if (found == ValueScanner::Found::Broken) {
        raw_ = held_.rest().substr(0, kMostRecord);
        return failure_ = reason = "value " + std::to_string(number_) + " " + what, Next::Broken;
      }
      if (found == ValueScanner::Found::More) break;
      record.place = "value " + std::to_string(number_++);
      cursor_ = 0;
      end_ = scanner_.end();
      scanner_.restart();
      const Head head = head_of(held_.rest());
      if (head.kind == Head::Array && head.length > 0 &&
          (batches_ || head_of(held_.rest().substr(head.bytes)).kind == Head::Map)) {
        cursor_ = head.bytes;
        batch_left_ = head.length;
        batch_at_ = 0;
        return next_of_batch(record, reason);
      }
      raw_ = held_.rest().substr(0, end_);
      const Next got = take(record, reason);
      held_.pass(end_);
      return got;
    }
    if (std::exchange(flushed_, false) && held_.size() > 0) {
      reason = "value " + std::to_string(number_++) + " is truncated";
      raw_ = held_.rest();
      held_.pass(held_.size());
      scanner_.restart();
      return Next::Refused;
    }
    return Next::None;
  }

 private:
  Next next_of_batch(Record& record, std::string& reason) {
    record.place = "sample " + std::to_string(batch_at_++);
    const size_t begin = cursor_;
    const Next got = take(record, reason);
    if (got != Next::Record) cursor_ = begin, pass_value();
    raw_ = held_.rest().substr(begin, cursor_ - begin);
    if (--batch_left_ == 0) held_.pass(end_);
    return got;
  }

  std::string_view here() const { return held_.rest().substr(cursor_, end_ - cursor_); }
  Head head() const { return head_of(here()); }
  void pass_value() {
    ValueScanner scanner;
    std::string unused;
    scanner.scan(here(), unused);
    cursor_ += scanner.end();
  }
  std::string_view take_bytes(const Head& of) {
    const std::string_view bytes = here().substr(of.bytes, of.length);
    cursor_ += of.bytes + of.length;
    return bytes;
  }

  Next take(Record& record, std::string& reason) {
    record.clear();
    record.numbered = false;
    const Head of = head();
    if (of.kind == Head::Map && !is_numpy()) {
      name_.clear();
      if (take_map(record, 0) && record.size() > 0) return Next::Record;
      reason = record.place + (record.size() == 0
                                   ? " is a map without fields"
                                   : " has too many fields, maps nested too deep, or keys that are not strings");
      return Next::Refused;
    }
    if (of.kind == Head::Text || of.kind == Head::Nil || of.kind == Head::Extension) {
      reason = record.place + " is " + described(of.kind) + "; a sample is a map, an array of numbers or a number";
      return Next::Refused;
    }
    take_value(record.add(""), record);
    return Next::Record;
  }
  static std::string described(Head::Kind kind) {
    switch (kind) {
      case Head::Nil:
        return "nil";
      case Head::Text:
        return "a string";
      case Head::Bytes:
        return "bytes";
      case Head::Array:
        return "an array";
      case Head::Map:
        return "a map";
      case Head::Extension:
        return "an extension";
      default:
        return "a number";
    }
  }

  bool take_map(Record& record, size_t depth) {
    if (depth == kMostDepth) return false;
    const Head of = head();
    cursor_ += of.bytes;
    const size_t prefix = name_.size();
    for (uint64_t i = 0; i < of.length; ++i) {
      const Head key = head();
      if ((key.kind != Head::Text && key.kind != Head::Bytes) || record.size() == kMostFields) return false;
      name_.resize(prefix);
      name_ += take_bytes(key);
      if (head().kind == Head::Map && !is_numpy()) {
        name_ += '.';
        if (!take_map(record, depth + 1)) return false;
      } else {
        take_value(record.add(name_), record);
      }
    }
    return true;
  }

  // {"nd": true, "type": "<f4", "shape": [2, 3], "data": bytes}, as msgpack-numpy writes arrays.
  bool is_numpy() const {
    const Head of = head();
    if (of.kind != Head::Map || of.length < 4) return false;
    const std::string_view in = here().substr(of.bytes);
    const Head key = head_of(in);
    return (key.kind == Head::Text || key.kind == Head::Bytes) && in.substr(key.bytes, key.length) == "nd";
  }
  void take_numpy(Field& field, Record& record) {
    const Head of = head();
    cursor_ += of.bytes;
    std::string type;
    std::string_view data;
    bool shaped = false;
    for (uint64_t i = 0; i < of.length; ++i) {
      const Head key = head();
      const std::string_view name =
          key.kind == Head::Text || key.kind == Head::Bytes ? take_bytes(key) : (pass_value(), "");
      const Head value = head();
      if (name == "type" && value.kind == Head::Text)
        type = take_bytes(value);
      else if (name == "data" && value.kind == Head::Bytes)
        data = take_bytes(value);
      else if (name == "shape" && value.kind == Head::Array && value.length <= HX_MAX_RANK)
        shaped = take_shape(field, value);
      else
        pass_value();
    }
    const char* what = nullptr;
    try {
      field.dtype = dtype_of_descr(type, {"value", ErrorKind::Stream});
      if (!shaped || tensor_bytes(field.dtype, field.shape) != data.size())
        what = "an array whose bytes do not fill its shape";
      else if (type[0] == '>' && element_bytes(field.dtype) > 1)
        what = "an array of big-endian numbers";
    } catch (const Error&) {
      what = "an array whose type or shape cannot be read";
    }
    if (what) return odd(field, what);
    field.kind = Field::Kind::Typed;
    field.at = record.bytes.size();
    field.count = data.size();
    const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
    record.bytes.insert(record.bytes.end(), bytes, bytes + data.size());
  }
  bool take_shape(Field& field, const Head& array) {
    cursor_ += array.bytes;
    field.shape = Shape();
    bool good = true;
    for (uint64_t i = 0; i < array.length; ++i) {
      const Head dim = head();
      good = good && dim.kind == Head::Whole && dim.number >= 1 && dim.number <= static_cast<double>(kMostRecord);
      if (good) field.shape.push_back(static_cast<int64_t>(dim.number));
      pass_value();
    }
    return good;
  }

  void take_value(Field& field, Record& record) {
    const Head of = head();
    field.at = record.numbers.size();
    switch (of.kind) {
      case Head::Nil:
        return pass_value();
      case Head::Truth:
      case Head::Whole:
      case Head::Real:
        field.kind = Field::Kind::Numbers;
        take_number(of, field, record);
        field.count = 1;
        return;
      case Head::Text:
        field.kind = Field::Kind::Word;
        field.text = take_bytes(of);
        return;
      case Head::Bytes: {
        const std::string_view bytes = take_bytes(of);
        if (bytes.empty()) return odd(field, "no bytes");
        field.kind = Field::Kind::Typed;
        field.dtype = DType::U8;
        field.shape = Shape{static_cast<int64_t>(bytes.size())};
        field.at = record.bytes.size();
        field.count = bytes.size();
        const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
        record.bytes.insert(record.bytes.end(), first, first + bytes.size());
        return;
      }
      case Head::Array: {
        const size_t begin = cursor_;
        field.kind = Field::Kind::Numbers;
        if (measure(field) && take_array(field, 0, record)) {
          field.count = record.numbers.size() - field.at;
          return;
        }
        cursor_ = begin;
        return pass_value();
      }
      case Head::Map:
        if (is_numpy()) return take_numpy(field, record);
        [[fallthrough]];
      default:
        odd(field, described(of.kind)), pass_value();
    }
  }
  void take_gap(const Head& of, Field& field, Record& record) {
    if (field.gaps.empty()) field.text = "nil where a number is expected";
    field.gaps.push_back(record.numbers.size() - field.at);
    record.numbers.push_back(0);
    cursor_ += of.bytes;
  }
  void take_number(const Head& of, Field& field, Record& record) {
    field.whole = field.whole && of.kind != Head::Real;
    record.numbers.push_back(of.number);
    cursor_ += of.bytes;
  }
  bool measure(Field& field) {
    std::string_view in = here();
    for (Head of = head_of(in); of.kind == Head::Array; of = head_of(in)) {
      if (of.length == 0 || field.shape.rank() == HX_MAX_RANK)
        return odd(field, of.length == 0 ? "an array of nothing" : "an array of more than 8 axes"), false;
      field.shape.push_back(static_cast<int64_t>(of.length));
      in.remove_prefix(of.bytes);
    }
    return true;
  }
  bool take_array(Field& field, uint32_t axis, Record& record) {
    const Head of = head();
    if (axis == field.shape.rank()) {
      if (of.kind == Head::Nil) return take_gap(of, field, record), true;
      if (of.kind != Head::Whole && of.kind != Head::Real && of.kind != Head::Truth)
        return odd(field, described(of.kind) + " where a number is expected"), false;
      return take_number(of, field, record), true;
    }
    if (of.kind != Head::Array || of.length != static_cast<uint64_t>(field.shape[axis]))
      return odd(field, "an array whose parts have different lengths"), false;
    cursor_ += of.bytes;
    for (uint64_t i = 0; i < of.length; ++i)
      if (!take_array(field, axis + 1, record)) return false;
    return true;
  }
  static void odd(Field& field, std::string what) {
    field.kind = Field::Kind::Odd;
    field.text = std::move(what);
  }

  bool batches_, flushed_ = false;
  HeldBytes held_;
  ValueScanner scanner_;
  std::string failure_, name_;
  std::string_view raw_;
  size_t number_ = 0;            // number of the value, from 0
  size_t cursor_ = 0, end_ = 0;  // in the held bytes: of the value being read
  uint64_t batch_left_ = 0, batch_at_ = 0;
};

}  // namespace

std::unique_ptr<RecordDecoder> make_msgpack_decoder(const DecoderOptions& options) {
  return std::make_unique<MsgpackDecoder>(options);
}

}  // namespace harmonics::plain
