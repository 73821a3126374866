// Decodes JSON: one value per line or, where a message is the unit, the values of the message.
#include <simdjson.h>

#include <cmath>

#include "wire/plain/held_bytes.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr size_t kMostKept = 256u << 10;

std::string json_type(element_type type) {
  switch (type) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "true or false";
    case element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

class JsonDecoder final : public RecordDecoder {
 public:
  explicit JsonDecoder(const DecoderOptions& options) : batches_(options.batches) {}

  void arrived(std::span<const std::byte> bytes) override { held_.add(bytes); }
  void flush() override { flushed_ = true; }
  size_t held() const override { return held_.size(); }
  std::string_view raw() override { return batch_ ? raw_of_batch() : raw_; }

  Next next(Record& record, std::string& reason) override {
    while (true) {
      if (batch_ && batch_at_ < batch_size_) return next_of_batch(record, reason);
      batch_.reset();
      if (flushed_ && whole_message(record)) return take(root_, record, reason);
      if (batch_) continue;
      std::string_view line;
      bool longer = false;
      if (!cutter_.next(held_, flushed_, line, longer)) return rest(), Next::None;
      if (cutter_.number() == 1 && line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
      record.place = "line " + std::to_string(cutter_.number());
      raw_ = longer ? std::string_view() : line;
      if (longer)
        return refuse(record, reason,
                      "is longer than " + std::to_string(kMostRecord) + " bytes; write each sample on a separate line");
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      if (const auto error = parse(line))
        return refuse(record, reason,
                      error == simdjson::UTF8_ERROR ? "is not UTF-8"
                                                    : std::string("is not JSON: ") + simdjson::error_message(error) +
                                                          "; every line must be one complete JSON value");
      if (begin_batch()) continue;
      return take(root_, record, reason);
    }
  }

 private:
  static Next refuse(const Record& record, std::string& reason, const std::string& what) {
    reason = record.place + " " + what;
    return Next::Refused;
  }

  // Parses the remaining bytes as one value that spans several lines.
  bool whole_message(Record& record) {
    const std::string_view rest = held_.rest();
    if (rest.size() > kMostRecord || rest.find_first_not_of(" \t\r\n") == std::string_view::npos) return false;
    const size_t line = rest.find('\n');
    if (line == std::string_view::npos || rest.find_first_not_of(" \t\r\n", line) == std::string_view::npos)
      return false;  // one line, handled as usual
    if (parse(rest)) return false;
    const auto lines = static_cast<size_t>(std::count(rest.begin(), rest.end(), '\n')) + (rest.back() != '\n');
    record.place = "line " + std::to_string(cutter_.number() + 1);
    cutter_.count(lines);
    raw_ = rest;
    held_.pass(rest.size());
    return !begin_batch();
  }

  // Releases the buffers of a long line, because there may be many decoders.
  void rest() {
    flushed_ = false;
    if (tail_.capacity() <= kMostKept) return;
    parser_ = simdjson::dom::parser();
    std::string().swap(tail_);
  }

  simdjson::error_code parse(std::string_view text) {
    // The parser reads a few bytes beyond its input.
    tail_.assign(text);
    tail_.append(simdjson::SIMDJSON_PADDING, ' ');
    return parser_.parse(tail_.data(), text.size(), false).get(root_);
  }

  // Begins a batch: an array of objects, or any array if a message may hold several samples.
  bool begin_batch() {
    simdjson::dom::array list;
    if (root_.get(list)) return false;
    if (!batches_ && (list.size() == 0 || (*list.begin()).type() != element_type::OBJECT)) return false;
    batch_ = list;
    batch_size_ = 0;
    for (const element unused : list) (void)unused, ++batch_size_;
    batch_at_ = 0;
    raw_at_ = 0;
    raw_end_ = tail_.find('[') + 1;
    batch_next_.emplace(list.begin());
    return true;
  }
  Next next_of_batch(Record& record, std::string& reason) {
    record.place = "sample " + std::to_string(batch_at_++);
    const element value = **batch_next_;
    ++*batch_next_;
    return take(value, record, reason);
  }

  // Returns the text of the batch's last element, which the parser has accepted as JSON.
  std::string_view raw_of_batch() {
    size_t begin = raw_end_;
    for (; raw_at_ < batch_at_; ++raw_at_) {
      begin = tail_.find_first_not_of(" \t\r\n,", raw_end_);
      raw_end_ = element_end(begin);
      raw_ = std::string_view(tail_).substr(begin, raw_end_ - begin);
    }
    return raw_;
  }
  size_t element_end(size_t at) const {
    size_t depth = 0;
    bool quoted = false;
    for (; at < tail_.size(); ++at) {
      const char c = tail_[at];
      if (quoted) {
        if (c == '\\') ++at;
        if (c == '"') quoted = false;
        continue;
      }
      if (c == '"') quoted = true;
      if (depth == 0 && (c == ',' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n')) return at;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
    }
    return at;
  }

  Next take(const element& value, Record& record, std::string& reason) {
    record.clear();
    record.numbered = false;
    if (value.type() == element_type::OBJECT) {
      name_.clear();
      if (!take_object(value, record, 0))
        return refuse(record, reason,
                      "has more than " + std::to_string(kMostFields) + " fields, or objects nested deeper than " +
                          std::to_string(kMostDepth));
      if (record.size() == 0) return refuse(record, reason, "is an object without fields");
      return Next::Record;
    }
    if (value.type() == element_type::STRING || value.type() == element_type::NULL_VALUE)
      return refuse(record, reason,
                    "is " + json_type(value.type()) + "; a sample is an object, an array of numbers or a number");
    take_value(value, record.add(""), record);
    return Next::Record;
  }

  bool take_object(const element& value, Record& record, size_t depth) {
    if (depth == kMostDepth) return false;
    simdjson::dom::object object;
    if (value.get(object)) return false;
    const size_t prefix = name_.size();
    for (const auto& [key, inner] : object) {
      if (record.size() == kMostFields) return false;
      name_.resize(prefix);
      name_ += key;
      if (inner.type() == element_type::OBJECT) {
        name_ += '.';
        if (!take_object(inner, record, depth + 1)) return false;
      } else {
        take_value(inner, record.add(name_), record);
      }
    }
    return true;
  }

  static void take_value(const element& value, Field& field, Record& record) {
    field.at = record.numbers.size();
    field.kind = Field::Kind::Numbers;
    switch (value.type()) {
      case element_type::NULL_VALUE:
        field.kind = Field::Kind::Missing;
        return;
      case element_type::STRING:
        field.kind = Field::Kind::Word;
        field.text = std::string_view(value.get_string());
        return;
      case element_type::ARRAY: {
        if (!measure(value, field) || !take_array(value, field, 0, record)) return;
        break;
      }
      default:
        take_number(value, field, record);
    }
    field.count = record.numbers.size() - field.at;
  }
  // Takes the shape from the first element of every nesting level.
  static bool measure(element value, Field& field) {
    for (simdjson::dom::array list; !value.get(list);) {
      size_t n = 0;
      for (const element unused : list) (void)unused, ++n;
      if (n == 0 || field.shape.rank() == HX_MAX_RANK)
        return odd(field, n == 0 ? "an array of nothing" : "an array of more than 8 axes");
      field.shape.push_back(static_cast<int64_t>(n));
      value = *list.begin();
    }
    return true;
  }
  static bool take_array(const element& value, Field& field, uint32_t axis, Record& record) {
    if (axis == field.shape.rank()) return take_number(value, field, record);
    simdjson::dom::array list;
    if (value.get(list)) return odd(field, json_type(value.type()) + " beside arrays");
    int64_t n = 0;
    for (const element inner : list)
      if (++n > field.shape[axis] || !take_array(inner, field, axis + 1, record)) break;
    if (field.kind == Field::Kind::Odd) return false;
    return n == field.shape[axis] || odd(field, "an array whose parts have different lengths");
  }
  static bool take_number(const element& value, Field& field, Record& record) {
    switch (value.type()) {
      case element_type::INT64:
        return record.numbers.push_back(static_cast<double>(value.get_int64())), true;
      case element_type::UINT64:
        return record.numbers.push_back(static_cast<double>(uint64_t{value.get_uint64()})), true;
      case element_type::DOUBLE:
        return record.numbers.push_back(value.get_double()), field.whole = false, true;
      case element_type::BOOL:
        return record.numbers.push_back(bool{value.get_bool()} ? 1.0 : 0.0), true;
      case element_type::NULL_VALUE:
        if (field.gaps.empty()) field.text = "null where a number is expected";
        field.gaps.push_back(record.numbers.size() - field.at);
        return record.numbers.push_back(0), true;
      default:
        return odd(field, json_type(value.type()) + " where a number is expected");
    }
  }
  static bool odd(Field& field, std::string what) {
    field.kind = Field::Kind::Odd;
    field.text = std::move(what);
    return false;
  }

  bool batches_, flushed_ = false;
  HeldBytes held_;
  LineCutter cutter_;
  simdjson::dom::parser parser_;
  element root_;
  std::string tail_, name_;
  std::string_view raw_;
  std::optional<simdjson::dom::array> batch_;  // of root_
  std::optional<simdjson::dom::array::iterator> batch_next_;
  size_t batch_at_ = 0, batch_size_ = 0;
  size_t raw_at_ = 0, raw_end_ = 0;  // number of elements that raw() has passed, and its offset in the text
};

}  // namespace

std::unique_ptr<RecordDecoder> make_json_decoder(const DecoderOptions& options) {
  return std::make_unique<JsonDecoder>(options);
}

}  // namespace harmonics::plain
