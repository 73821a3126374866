#include "wire/plain/selection.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <harmonics/announced.hpp>
#include <harmonics/quantity.hpp>

#include "wire/plain/cell_text.hpp"

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

bool has_value(const Record& record, size_t at) {
  return at < record.size() && record[at].kind != Field::Kind::Missing;
}

bool is_integer(DType dtype) {
  return dtype != DType::F32 && dtype != DType::F64 && dtype != DType::F16 && dtype != DType::BF16;
}

// Returns the number of values in a field, in any notation; 0: none.
size_t cells_of(const Field& field) {
  if (field.kind == Field::Kind::Numbers) return field.count;
  if (field.kind == Field::Kind::Typed) return field.count / element_bytes(field.dtype);
  return field.kind == Field::Kind::Word ? 1 : 0;
}

}  // namespace

std::optional<StreamInfo> read_type(std::string text, bool& scalar) {
  scalar = !text.empty() && text.back() == ':';
  if (scalar) text.pop_back();
  return read_announced(text);
}

std::string raw_type(const std::string& where, const std::string& given,
                     const std::map<std::string, std::string>& schema, const std::string& declared) {
  if (given.empty() && schema.size() > 1)
    throw Error(ErrorKind::Usage, where + ": its schema names " + quantity(schema.size(), "field") +
                                      ", and a sample of bare numbers is one")
        .note("leave one field in it, or give ?type=f32:28x28");
  const std::string type = given.empty() && !schema.empty() ? schema.begin()->second : given;
  if (type.empty() && declared.empty())
    throw Error(ErrorKind::Usage, where + ": format=raw needs the shape of a sample, and the flow declares none")
        .note("declare it in the flow, 'producer x {28, 28};', or give ?type=f32:28x28, or ?type=f32: for one number");
  if (type.empty()) return declared;
  if (type.find_first_of(":<") != std::string::npos) return type;
  return type + (declared.empty() ? ":" : declared.substr(declared.find_first_of(":<")));
}

Selection::Selection(Asked asked, std::string where) : asked_(std::move(asked)), where_(std::move(where)) {
  bool scalar = false;
  const std::optional<StreamInfo> info = read_type(asked_.type, scalar);
  if (!info && !asked_.type.empty())
    throw Error(ErrorKind::Usage, where_ + ": '" + asked_.type + "' is not a sample type")
        .note("write type=u8, type=u8:28x28, or with classes type=i64<10");
  take_words(info ? &*info : nullptr);
  read_filler();
  if (!info) return;
  part_.dtype = info->dtype;
  part_.classes = wire::classes_told(info->dtype, info->classes);
  dtype_given_ = true;
  if (!scalar && info->sample.rank() == 0 && info->classes == 0) return;  // the first record decides the shape
  part_.sample = info->sample;
  cells_ = static_cast<size_t>(info->sample.count());
  known_ = arranges_ = true;
  convert_filler();
}

// Limits class numbers to the classes that the flow declares, so that another number is refused with its location.
void Selection::take_declared_classes() {
  if (part_.classes > 0 || asked_.use != "classes" || cells_ != 1 || !is_integer(part_.dtype)) return;
  bool scalar = false;
  const std::optional<StreamInfo> declared = read_type(asked_.declared, scalar);
  if (declared) part_.classes = wire::classes_told(part_.dtype, declared->classes);
}

// Makes words class indices. A checkpoint or spool stores words with this type; another type overrides learned words.
void Selection::take_words(const StreamInfo* type) {
  const std::vector<std::string>& words = asked_.symbols;
  if (words.empty()) return;
  if (type && (type->dtype != DType::I64 || type->classes != static_cast<int64_t>(words.size()))) {
    if (asked_.learned) return;
    throw Error(ErrorKind::Usage, where_ + ": symbols= and type= both set the sample type").note("keep one of them");
  }
  for (size_t i = 0; i < words.size(); ++i) classes_[words[i]] = static_cast<int64_t>(i);
  part_.dtype = DType::I64;
  part_.classes = static_cast<uint32_t>(words.size());
  takes_numbers_ = asked_.learned && std::none_of(words.begin(), words.end(),
                                                  [](const std::string& word) { return integer_in(word).has_value(); });
}

// Returns whether learned words apply to records like the first one: every field is a word, or the only one an integer.
bool Selection::fits_words(const Record& first) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    const Field& field = first[part.likely];
    if (field.kind == Field::Kind::Word || field.kind == Field::Kind::Missing) return true;
    const bool whole = field.kind == Field::Kind::Typed ? is_integer(field.dtype) : field.whole;
    return parts_.size() == 1 && cells_of(field) == 1 && whole;
  });
}

// Returns the class of a word; nothing if it is unknown.
std::optional<int64_t> Selection::class_of(std::string_view word) const {
  if (const auto at = classes_.find(word); at != classes_.end()) return at->second;
  const std::optional<int64_t> number = takes_numbers_ ? integer_in(word) : std::nullopt;
  return number && *number >= 0 && *number < static_cast<int64_t>(part_.classes) ? number : std::nullopt;
}

// Returns the learned words, for messages.
std::string Selection::learned() const {
  constexpr size_t kMost = 20, kMostLetters = 100;
  std::string known;
  for (size_t i = 0; i < std::min(asked_.symbols.size(), kMost); ++i)
    known += (i ? ", " : "") + asked_.symbols[i].substr(0, kMostLetters);
  return known + (asked_.symbols.size() > kMost ? ", ..." : "");
}

void Selection::read_filler() {
  filler_.reset();
  if (!asked_.missing) return;
  const std::string& text = *asked_.missing;
  const std::string what = where_ + ": missing=" + text;
  if (text == "mean")
    throw Error(ErrorKind::Usage, what + " needs every sample beforehand, and a stream has no end to wait for")
        .note("give the value itself; harmonics inspect 'file:OLD.csv?missing=mean' prints the means of a file");
  filler_.emplace();
  Field& field = filler_->field;
  field.text = text;
  field.count = 1;
  if (!classes_.empty()) {
    if (!class_of(text))
      throw Error(ErrorKind::Usage, what + (asked_.learned ? " is not a word that the weights know: " + learned()
                                                           : " is not a word that symbols= lists"))
          .note(asked_.learned ? "give one of them" : "give one of them, or add it");
    field.kind = Field::Kind::Word;
    return;
  }
  field.kind = Field::Kind::Numbers;
  const bool truth = text == "true" || text == "false";
  field.whole = truth || integer_in(text);
  if (truth)
    filler_->number = text == "true";
  else if (const auto number = number_in(text))
    filler_->number = *number;
  else
    throw Error(ErrorKind::Usage, what + " is not a number").note("give a number or nan; words are for symbols=");
}

// Converts the replacement for missing values to the samples' type, once that is known.
void Selection::convert_filler() {
  if (!filler_) return;
  std::vector<std::byte>& bytes = filler_->bytes;
  std::string reason;
  bool good = true;
  if (filler_->field.kind == Field::Kind::Word) {
    good = append_word(filler_->field, filler_->field.text, bytes, reason);
  } else if (!std::isnan(filler_->number)) {
    good = convert(&filler_->number, 1, filler_->field, bytes, reason);
  } else if (part_.dtype == DType::F64) {
    bytes.resize(sizeof(double));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(bytes.data(), &nan, sizeof nan);
  } else {
    bytes.resize(sizeof(float));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bytes.data(), &nan, sizeof nan);
    good = part_.dtype == DType::F32;
  }
  if (!good)
    throw Error(ErrorKind::Usage, where_ + ": missing=" + filler_->field.text +
                                      (part_.classes > 0 ? " is not a class below " + std::to_string(part_.classes)
                                                         : " cannot be represented in " + type_text()))
        .note(part_.dtype == DType::F32 || part_.dtype == DType::F64
                  ? "give a number of this type"
                  : "give a whole number of this type, or read numbers with ?type=f32");
}

// Returns why a field is unusable; "": it is usable, or can be filled in.
std::string Selection::wrong_with(const Field& field) const {
  if (field.kind == Field::Kind::Odd) return shown(field) + " is " + field.text;
  if (filler_) return "";
  if (field.kind == Field::Kind::Missing) return shown(field) + " has no value";
  return field.gaps.empty() ? "" : shown(field) + " is " + field.text;
}

bool Selection::choose(const Record& record, std::string& reason) {
  parts_.clear();
  if (asked_.selection.empty()) {
    for (size_t i = 0; i < record.size(); ++i) parts_.push_back({record[i].name, i, 0, false});
    return chosen_ = true;
  }
  for (const std::string& word : words_of(asked_.selection))
    if (!choose_one(record, word, reason)) return false;
  return chosen_ = true;
}

bool Selection::choose_one(const Record& record, const std::string& word, std::string& reason) {
  if (const size_t at = record.find(word); at < record.size()) return parts_.push_back({word, at, 0, false}), true;
  size_t first = 0, last = 0;
  const char* const end = word.data() + word.size();
  const auto from = std::from_chars(word.data(), end, first);
  bool range = record.numbered && from.ec == std::errc();
  last = first;
  if (range && from.ptr != end) {
    const auto to = std::from_chars(from.ptr + 1, end, last);
    range = *from.ptr == '-' && to.ec == std::errc() && to.ptr == end && last >= first;
  }
  const bool unnamed = record.size() == 1 && record[0].name.empty();
  // If the type is known, a later record may have the field.
  if (filler_ && known_ && !record.numbered && !unnamed) return parts_.push_back({word, record.size(), 0, false}), true;
  if (!range || last >= record.size()) {
    if (unnamed)
      reason =
          record.place + " is one value without a name, and has no field '" + word + "'; leave out '#" + word + "'";
    else
      reason = record.place + " has no field '" + word + "'; its fields are: " + fields_of(record);
    return false;
  }
  for (size_t at = first; at <= last; ++at) parts_.push_back({record[at].name, at, 0, false});
  return true;
}

DType Selection::dtype_of_numbers(const Record& first, const Field& field) const {
  if (field.kind == Field::Kind::Typed) return field.dtype;
  if (asked_.use == "numbers") return DType::F32;
  const bool missing = field.kind == Field::Kind::Missing, whole = missing ? filler_->field.whole : field.whole;
  if ((missing ? part_.sample : field.shape).rank() > 0)
    return asked_.use == "lookup" && whole ? DType::I64 : DType::F32;
  const double value = missing ? filler_->number : first.numbers[field.at];
  return whole || (!asked_.use.empty() && value == std::trunc(value)) ? DType::I64 : DType::F32;
}

void Selection::learn(const Record& first) {
  if (known_) return;
  std::string reason;
  if (!choose(first, reason)) {
    Error unknown(ErrorKind::Name, where_ + ": " + reason);
    if (filler_) unknown.note("the first sample must have every field, if only as null, unless ?type= says what it is");
    throw unknown;
  }
  for (const Part& part : parts_)
    if (const std::string wrong = wrong_with(first[part.likely]); !wrong.empty())
      throw Error(ErrorKind::Stream, where_ + ": " + first.place + ": " + wrong)
          .note(
              "the first sample determines the type; with ?type=, samples that lack a value are refused and counted, "
              "or "
              "filled in with ?missing=VALUE");
  if (asked_.learned && !classes_.empty() && !fits_words(first)) {
    classes_.clear();
    takes_numbers_ = false;
    part_ = {};
    read_filler();
  }
  size_t cells = 0, missing = 0;
  for (const Part& part : parts_) {
    const Field& field = first[part.likely];
    if (field.kind == Field::Kind::Word && classes_.empty())
      throw Error(ErrorKind::Stream,
                  where_ + ": " + first.place + ": " + shown(field) + " is the word '" + field.text + "'")
          .note(parts_.size() > 1 ? "choose fields of numbers with '#NAME,NAME'"
                                  : "give the class words in order: ?symbols=a,b,c");
    missing += field.kind == Field::Kind::Missing;
    cells += cells_of(field);
  }
  if (missing > 0) cells = cells_without(first, cells, missing);
  const Field& only = first[parts_.front().likely];
  if (parts_.size() == 1) {
    if (!dtype_given_ && classes_.empty()) part_.dtype = dtype_of_numbers(first, only);
    if (missing == 0) part_.sample = only.shape;
  } else {
    if (!dtype_given_ && classes_.empty()) part_.dtype = DType::F32;
    part_.sample = Shape{static_cast<int64_t>(cells)};
  }
  if (tensor_bytes(part_.dtype, part_.sample) > kMostRecord)
    throw Error(ErrorKind::Stream, where_ + ": samples of " + std::to_string(tensor_bytes(part_.dtype, part_.sample)) +
                                       " bytes; the maximum is " + std::to_string(kMostRecord));
  cells_ = cells;
  known_ = true;
  take_declared_classes();
  convert_filler();
}

// Returns the number of values of a sample, given a first record with `cells` values and without `missing` fields.
size_t Selection::cells_without(const Record& first, size_t cells, size_t missing) {
  if (first.numbered || asked_.use == "classes" || !classes_.empty()) return cells + missing;
  bool scalar = false;
  if (const std::optional<StreamInfo> declared = read_type(asked_.declared, scalar)) {
    const auto all = static_cast<size_t>(declared->sample.count());
    if (parts_.size() == 1) part_.sample = declared->sample, arranges_ = true;
    if (all == cells + missing || (missing == 1 && all > cells)) return all;
  }
  std::string name;
  for (const Part& part : parts_)
    if (first[part.likely].kind == Field::Kind::Missing && name.empty()) name = shown(first[part.likely]);
  throw Error(ErrorKind::Stream,
              where_ + ": " + first.place + ": " + name + " has no value, and how many numbers it has is not known yet")
      .note("give the sample type: ?type=f32:4 for four numbers, ?type=f32: for one");
}

bool Selection::mismatch(const Record& record, const Shape& is, std::string& reason) const {
  const bool one = parts_.size() == 1;
  reason = record.place + ": " +
           (!one                          ? "the fields together"
            : parts_.front().name.empty() ? "the value"
                                          : "'" + parts_.front().name + "'") +
           " of " + (is.rank() ? "shape " + is.str() : "one number") + ", a sample has " +
           (part_.sample.rank() ? "the shape " + part_.sample.str() : "one number");
  return false;
}

bool Selection::encode(const Record& record, std::vector<std::byte>& to, std::string& reason) {
  if (!chosen_ && !choose(record, reason)) return false;
  if (asked_.selection.empty() && record.size() != parts_.size() && !(filler_ && record.size() < parts_.size())) {
    reason =
        record.place + " has " + quantity(record.size(), "field") + ", the first had " + std::to_string(parts_.size());
    return false;
  }
  const size_t begin = to.size();
  size_t cells = 0;
  for (Part& part : parts_) {
    const size_t at = record.find(part.name, part.likely);
    if (at == record.size() && !filler_) return reason = record.place + " has no field '" + part.name + "'", false;
    if (at == record.size() || (filler_ && record[at].kind == Field::Kind::Missing))
      return to.resize(begin), encode_filled(record, to, reason);
    part.likely = at;
    part.came = true;
    const Field& field = record[at];
    if (const std::string wrong = wrong_with(field); !wrong.empty()) return reason = record.place + ": " + wrong, false;
    cells += cells_of(field);
    const bool one = parts_.size() == 1;
    if (cells > cells_ || (one && !arranges_ && field.shape != part_.sample))
      return mismatch(record, one ? field.shape : Shape{static_cast<int64_t>(cells)}, reason);
    if (!append(record, field, to, reason)) return reason = record.place + ": " + reason, false;
  }
  if (cells != cells_)
    return mismatch(
        record, parts_.size() == 1 ? record[parts_.front().likely].shape : Shape{static_cast<int64_t>(cells)}, reason);
  for (size_t i = 0; filler_ && i < parts_.size(); ++i) parts_[i].cells = cells_of(record[parts_[i].likely]);
  return true;
}

// Encodes a record with missing values. A field that never had a value is filled with the remaining values of a sample;
// several such fields with one value each.
bool Selection::encode_filled(const Record& record, std::vector<std::byte>& to, std::string& reason) {
  if (record.size() == 1 && record[0].name.empty() && !parts_.front().name.empty())
    return reason = record.place + " is one value without a name", false;
  size_t cells = 0, unknown = 0, present = 0;
  std::string never;
  for (Part& part : parts_) {
    part.likely = record.find(part.name, part.likely);
    const bool there = part.likely < record.size();
    if (there)
      if (const std::string wrong = wrong_with(record[part.likely]); !wrong.empty())
        return reason = record.place + ": " + wrong, false;
    if (!there && !std::exchange(part.came, true)) never += (never.empty() ? "'" : ", '") + part.name + "'";
    present += there;
    const size_t own = has_value(record, part.likely) ? cells_of(record[part.likely]) : part.cells;
    cells += own;
    unknown += own == 0;
  }
  if (!never.empty())
    note_ = record.place + ": no sample had " + never + " until now; using missing=" + filler_->field.text;
  if (asked_.selection.empty() && present < record.size()) {
    reason = record.place + " has fields that the first sample did not have";
    return false;
  }
  const size_t rest = cells_ - std::min(cells, cells_), each = unknown == 1 ? rest : 1;
  if (cells + unknown * each != cells_ || (unknown > 0 && each == 0))
    return mismatch(record, Shape{static_cast<int64_t>(cells)}, reason);
  for (const Part& part : parts_) {
    if (has_value(record, part.likely)) {
      if (!append(record, record[part.likely], to, reason)) return reason = record.place + ": " + reason, false;
      continue;
    }
    for (size_t i = 0; i < (part.cells > 0 ? part.cells : each); ++i)
      to.insert(to.end(), filler_->bytes.begin(), filler_->bytes.end());
  }
  return true;
}

bool Selection::append_word(const Field& field, const std::string& word, std::vector<std::byte>& to,
                            std::string& reason) const {
  const std::optional<int64_t> number = class_of(word);
  if (!number) {
    reason = shown(field) + " is the word '" + word.substr(0, 100) + "'" +
             (classes_.empty() ? ", but a number is expected"
              : asked_.learned ? ", which is unknown to the weights; they know " + learned()
                               : ", which symbols= does not list");
    return false;
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(&*number);
  to.insert(to.end(), bytes, bytes + sizeof *number);
  return true;
}

bool Selection::append(const Record& record, const Field& field, std::vector<std::byte>& to,
                       std::string& reason) const {
  if (field.kind == Field::Kind::Word) return append_word(field, field.text, to, reason);
  if (!classes_.empty() && !(takes_numbers_ && field.kind == Field::Kind::Typed)) {
    const bool number = field.kind == Field::Kind::Numbers && field.gaps.empty();
    if (number && !field.text.empty())
      return append_word(field, field.text, to, reason);  // a numeric word, as in tables
    if (number && field.count == 1 && asked_.learned)
      return append_word(field, number_text(record.numbers[field.at]), to, reason);
    reason =
        shown(field) + " is not a word that " + (asked_.learned ? "the weights know: " + learned() : "symbols= lists");
    return false;
  }
  if (field.kind == Field::Kind::Numbers) {
    const size_t begin = to.size();
    if (!convert(record.numbers.data() + field.at, field.count, field, to, reason)) return false;
    for (const size_t gap : field.gaps)
      std::memcpy(to.data() + begin + gap * filler_->bytes.size(), filler_->bytes.data(), filler_->bytes.size());
    return true;
  }
  const std::byte* const bytes = record.bytes.data() + field.at;
  const size_t count = cells_of(field);
  if (field.dtype == part_.dtype && part_.classes == 0) return to.insert(to.end(), bytes, bytes + field.count), true;
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
      const bool inexact = part_.classes == 0 && std::is_integral_v<To> && std::abs(wide) >= kMostWhole;
      reason = shown(field) + " has " + number_text(wide) + ", which " +
               (inexact             ? "is not below 2^53, where integers are exact"
                : part_.classes > 0 ? "is not a class below " + std::to_string(part_.classes)
                                    : type_text() + " cannot represent");
      return false;
    }
    std::memcpy(to.data() + begin + i * sizeof(To), &value, sizeof value);
  }
  return true;
}

}  // namespace harmonics::plain
