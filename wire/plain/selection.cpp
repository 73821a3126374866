#include "wire/plain/selection.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <harmonics/announced.hpp>

namespace harmonics::plain {
namespace {

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: larger integers are not exact in a double

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',')
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

std::string fields_of(const Record& record) {
  std::string all;
  for (size_t i = 0; i < record.size(); ++i) {
    if (i == 20) return all + ", ...";
    all += (i ? ", " : "") + record[i].name;
  }
  return all;
}

std::string shown(const Field& field) { return field.name.empty() ? "the value" : "'" + field.name + "'"; }

std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Returns the number of values in a field, whatever their notation; 0: none.
size_t cells_of(const Field& field) {
  if (field.kind == Field::Kind::Numbers) return field.count;
  if (field.kind == Field::Kind::Typed) return field.count / element_bytes(field.dtype);
  return field.kind == Field::Kind::Word ? 1 : 0;
}

// Describes why a field is unusable; "": it is usable.
std::string wrong_with(const Field& field) {
  if (field.kind == Field::Kind::Missing) return shown(field) + " has no value";
  if (field.kind == Field::Kind::Odd) return shown(field) + " is " + field.text;
  return "";
}

}  // namespace

Selection::Selection(Asked asked, std::string where) : asked_(std::move(asked)), where_(std::move(where)) {
  for (size_t i = 0; i < asked_.symbols.size(); ++i) classes_[asked_.symbols[i]] = static_cast<int64_t>(i);
  if (!asked_.symbols.empty()) part_.dtype = DType::I64, part_.classes = static_cast<uint32_t>(asked_.symbols.size());
  if (asked_.type.empty()) return;
  std::string text = asked_.type;
  const bool scalar = text.back() == ':';  // "f32:" is one number
  if (scalar) text.pop_back();
  const std::optional<StreamInfo> info = read_announced(text);
  if (!info)
    throw Error(ErrorKind::Usage, where_ + ": '" + asked_.type + "' is no type of samples")
        .note("write type=u8, type=u8:28x28, or with classes type=i64<10");
  if (!asked_.symbols.empty())
    throw Error(ErrorKind::Usage, where_ + ": symbols= and type= both set the sample type").note("keep one of them");
  part_.dtype = info->dtype;
  part_.classes = wire::classes_told(info->dtype, info->classes);
  dtype_given_ = true;
  if (!scalar && info->sample.rank() == 0 && info->classes == 0) return;  // the first record decides the shape
  part_.sample = info->sample;
  cells_ = static_cast<size_t>(info->sample.count());
  known_ = arranges_ = true;
}

bool Selection::choose(const Record& record, std::string& reason) {
  parts_.clear();
  if (asked_.selection.empty()) {
    for (size_t i = 0; i < record.size(); ++i) parts_.push_back({record[i].name, i});
    return chosen_ = true;
  }
  for (const std::string& word : words_of(asked_.selection))
    if (!choose_one(record, word, reason)) return false;
  return chosen_ = true;
}

bool Selection::choose_one(const Record& record, const std::string& word, std::string& reason) {
  if (const size_t at = record.find(word); at < record.size()) return parts_.push_back({word, at}), true;
  size_t first = 0, last = 0;
  const char* const end = word.data() + word.size();
  const auto from = std::from_chars(word.data(), end, first);
  bool range = record.numbered && from.ec == std::errc();
  last = first;
  if (range && from.ptr != end) {
    const auto to = std::from_chars(from.ptr + 1, end, last);
    range = *from.ptr == '-' && to.ec == std::errc() && to.ptr == end && last >= first;
  }
  if (!range || last >= record.size()) {
    if (record.size() == 1 && record[0].name.empty())
      reason = record.place + " is one value without a name, and has no field '" + word + "'";
    else
      reason = record.place + " has no field '" + word + "'; its fields are: " + fields_of(record);
    return false;
  }
  for (size_t at = first; at <= last; ++at) parts_.push_back({record[at].name, at});
  return true;
}

DType Selection::dtype_of_numbers(const Record& first, const Field& field) const {
  if (field.kind == Field::Kind::Typed) return field.dtype;
  if (asked_.use == "numbers") return DType::F32;
  if (field.shape.rank() > 0) return asked_.use == "lookup" && field.whole ? DType::I64 : DType::F32;
  const double value = first.numbers[field.at];
  return field.whole || (!asked_.use.empty() && value == std::trunc(value)) ? DType::I64 : DType::F32;
}

void Selection::learn(const Record& first) {
  if (known_) return;
  std::string reason;
  if (!choose(first, reason)) throw Error(ErrorKind::Name, where_ + ": " + reason);
  for (const Part& part : parts_)
    if (const std::string wrong = wrong_with(first[part.likely]); !wrong.empty())
      throw Error(ErrorKind::Stream, where_ + ": " + first.place + ": " + wrong)
          .note("the first sample determines the type; with ?type=, samples that lack a value are refused and counted");
  size_t cells = 0;
  for (const Part& part : parts_) {
    const Field& field = first[part.likely];
    if (field.kind == Field::Kind::Word && classes_.empty())
      throw Error(ErrorKind::Stream,
                  where_ + ": " + first.place + ": " + shown(field) + " is the word '" + field.text + "'")
          .note(parts_.size() > 1 ? "choose fields of numbers with '#NAME,NAME'"
                                  : "give the class words in order: ?symbols=a,b,c");
    cells += cells_of(field);
  }
  const Field& only = first[parts_.front().likely];
  if (parts_.size() == 1) {
    if (!dtype_given_ && classes_.empty()) part_.dtype = dtype_of_numbers(first, only);
    part_.sample = only.shape;
  } else {
    if (!dtype_given_) part_.dtype = DType::F32;
    part_.sample = Shape{static_cast<int64_t>(cells)};
  }
  if (tensor_bytes(part_.dtype, part_.sample) > kMostRecord)
    throw Error(ErrorKind::Stream, where_ + ": samples of " + std::to_string(tensor_bytes(part_.dtype, part_.sample)) +
                                       " bytes; the most is " + std::to_string(kMostRecord));
  cells_ = cells;
  known_ = true;
}

bool Selection::mismatch(const Record& record, const Field& field, size_t cells, std::string& reason) const {
  const bool one = parts_.size() == 1;
  const Shape is = one ? field.shape : Shape{static_cast<int64_t>(cells)};
  reason = record.place + ": " + (one ? shown(field) : "the fields together") + " of " +
           (is.rank() ? "shape " + is.str() : "one number") + ", a sample has " +
           (part_.sample.rank() ? "the shape " + part_.sample.str() : "one number");
  return false;
}

bool Selection::encode(const Record& record, std::vector<std::byte>& to, std::string& reason) {
  if (!chosen_ && !choose(record, reason)) return false;
  if (asked_.selection.empty() && record.size() != parts_.size()) {
    reason = record.place + " has " + std::to_string(record.size()) + " fields, the first had " +
             std::to_string(parts_.size());
    return false;
  }
  size_t cells = 0;
  for (Part& part : parts_) {
    const size_t at = record.find(part.name, part.likely);
    if (at == record.size()) return reason = record.place + " has no field '" + part.name + "'", false;
    part.likely = at;
    const Field& field = record[at];
    if (const std::string wrong = wrong_with(field); !wrong.empty()) return reason = record.place + ": " + wrong, false;
    cells += cells_of(field);
    if (cells > cells_ || (parts_.size() == 1 && !arranges_ && field.shape != part_.sample))
      return mismatch(record, field, cells, reason);
    if (!append(record, field, to, reason)) return reason = record.place + ": " + reason, false;
  }
  return cells == cells_ || mismatch(record, record[parts_.front().likely], cells, reason);
}

bool Selection::append_word(const Field& field, std::vector<std::byte>& to, std::string& reason) const {
  const auto at = classes_.find(field.text);
  if (at == classes_.end()) {
    reason = shown(field) + " is the word '" + field.text.substr(0, 100) + "'" +
             (classes_.empty() ? ", but a number is expected" : ", which symbols= does not list");
    return false;
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(&at->second);
  to.insert(to.end(), bytes, bytes + sizeof at->second);
  return true;
}

bool Selection::append(const Record& record, const Field& field, std::vector<std::byte>& to,
                       std::string& reason) const {
  if (!classes_.empty()) {
    if (field.kind == Field::Kind::Word) return append_word(field, to, reason);
    if (field.text.empty() || field.kind != Field::Kind::Numbers)
      return reason = shown(field) + " is not a word that symbols= lists", false;
    return append_word(field, to, reason);  // a word that is a number, as in tables
  }
  if (field.kind == Field::Kind::Word) return append_word(field, to, reason);
  if (field.kind == Field::Kind::Numbers)
    return convert(record.numbers.data() + field.at, field.count, field, to, reason);
  const std::byte* const bytes = record.bytes.data() + field.at;
  const size_t count = cells_of(field);
  if (field.dtype == part_.dtype) return to.insert(to.end(), bytes, bytes + field.count), true;
  const auto as = [&](auto zero) {
    std::vector<decltype(zero)> numbers(count);
    std::memcpy(numbers.data(), bytes, field.count);
    return convert(numbers.data(), count, field, to, reason);
  };
  switch (field.dtype) {
    case DType::Bool:
    case DType::U8:
      return as(uint8_t{});
    case DType::I8:
      return as(int8_t{});
    case DType::I16:
      return as(int16_t{});
    case DType::U16:
      return as(uint16_t{});
    case DType::I32:
      return as(int32_t{});
    case DType::U32:
      return as(uint32_t{});
    case DType::I64:
      return as(int64_t{});
    case DType::U64:
      return as(uint64_t{});
    case DType::F32:
      return as(float{});
    case DType::F64:
      return as(double{});
    default:
      return reason = shown(field) + " has half-precision numbers, but another type is declared", false;
  }
}

std::string Selection::type_text() const {
  StreamInfo info;
  info.dtype = part_.dtype;
  return announced_text(info);
}

template <typename From>
bool Selection::convert(const From* from, size_t count, const Field& field, std::vector<std::byte>& to,
                        std::string& reason) const {
  switch (part_.dtype) {
    case DType::Bool:
    case DType::U8:
      return convert_to<uint8_t>(from, count, field, to, reason);
    case DType::I8:
      return convert_to<int8_t>(from, count, field, to, reason);
    case DType::I16:
      return convert_to<int16_t>(from, count, field, to, reason);
    case DType::U16:
      return convert_to<uint16_t>(from, count, field, to, reason);
    case DType::I32:
      return convert_to<int32_t>(from, count, field, to, reason);
    case DType::U32:
      return convert_to<uint32_t>(from, count, field, to, reason);
    case DType::I64:
      return convert_to<int64_t>(from, count, field, to, reason);
    case DType::U64:
      return convert_to<uint64_t>(from, count, field, to, reason);
    case DType::F32:
      return convert_to<float>(from, count, field, to, reason);
    case DType::F64:
      return convert_to<double>(from, count, field, to, reason);
    default:
      return reason = "half-precision numbers are read only from arrays of that type", false;
  }
}

template <typename To, typename From>
bool Selection::convert_to(const From* from, size_t count, const Field& field, std::vector<std::byte>& to,
                           std::string& reason) const {
  const size_t begin = to.size();
  to.resize(begin + count * sizeof(To));
  for (size_t i = 0; i < count; ++i) {
    const auto wide = static_cast<double>(from[i]);
    To value{};
    bool good = true;
    if constexpr (std::is_floating_point_v<To>) {
      value = static_cast<To>(wide);
      good = std::isfinite(value) || (!std::isfinite(wide) && field.kind == Field::Kind::Typed);
    } else {
      const double most = part_.dtype == DType::Bool ? 1
                          : part_.classes > 0        ? part_.classes - 1.0
                                                     : static_cast<double>(std::numeric_limits<To>::max());
      const double least = part_.classes > 0 ? 0 : static_cast<double>(std::numeric_limits<To>::min());
      good = wide == std::trunc(wide) && wide >= least && wide <= most && std::abs(wide) < kMostWhole;
      if (good) value = static_cast<To>(wide);
    }
    if (!good) {
      reason = shown(field) + " has " + number_text(wide) + ", which is no " +
               (part_.classes > 0 ? "class below " + std::to_string(part_.classes) : type_text());
      return false;
    }
    std::memcpy(to.data() + begin + i * sizeof(To), &value, sizeof value);
  }
  return true;
}

}  // namespace harmonics::plain
