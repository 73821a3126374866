// Selection and mapping of samples: FilterProducer, PickProducer, MapProducer, and the conditions of where=.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/wrappers.hpp>

namespace harmonics {

// A condition on a sample: "value<5", "value[2]>=0.5,value[2]<1", "value=setosa", "finite". Compares one value by
// index, or all values. Conditions separated by commas must all hold. A word is compared by its class number in the
// stream's symbols.
class Condition {
 public:
  Condition(const std::string& text, const StreamInfo& info)
      : dtype_(info.dtype), count_(static_cast<uint64_t>(info.sample.count())) {
    if (dtype_ == DType::F16 || dtype_ == DType::BF16)
      throw Error(ErrorKind::Usage, "where=" + text + ": samples of 16-bit floats cannot be compared");
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      terms_.push_back(term(text, text.substr(at, comma - at), info));
      at = comma + 1;
    }
  }

  // Returns whether the sample with these bytes satisfies the condition.
  bool operator()(const void* sample) const {
    for (const Term& t : terms_)
      for (uint64_t i = t.all ? 0 : t.place; i < (t.all ? count_ : t.place + 1); ++i)
        if (!holds(t, element(sample, i))) return false;
    return true;
  }
  bool operator()(const HTensor& sample) const { return (*this)(sample.bytes()); }

 private:
  enum class Compare { Less, LessEqual, Greater, GreaterEqual, Equal, Unequal, Finite };
  struct Term {
    bool all = true;
    uint64_t place = 0;
    Compare compare = Compare::Finite;
    double value = 0;
  };

  [[noreturn]] static void refuse(const std::string& text, const std::string& what) {
    throw Error(ErrorKind::Usage,
                "where=" + text + ": " + what + "; write for example value<5, value[0]>=0.5, value!=3 or finite");
  }

  Term term(const std::string& text, const std::string& word, const StreamInfo& info) const {
    Term t;
    if (word == "finite") return t;
    const std::string head = "value";
    if (word.compare(0, head.size(), head) != 0) refuse(text, "'" + word + "' does not begin with value");
    std::size_t at = head.size();
    if (at < word.size() && word[at] == '[') {
      char* end = nullptr;
      t.all = false;
      t.place = std::strtoull(word.c_str() + at + 1, &end, 10);
      if (end == word.c_str() + at + 1 || *end != ']') refuse(text, "'" + word + "' has no index such as [0]");
      at = static_cast<std::size_t>(end - word.c_str()) + 1;
      if (t.place >= count_)
        refuse(text, "there is no value[" + std::to_string(t.place) + "], a sample has " + std::to_string(count_));
    }
    static const struct {
      const char* sign;
      Compare compare;
    } signs[] = {{"<=", Compare::LessEqual}, {">=", Compare::GreaterEqual}, {"!=", Compare::Unequal},
                 {"<", Compare::Less},       {">", Compare::Greater},       {"=", Compare::Equal}};
    for (const auto& s : signs) {
      if (word.compare(at, std::char_traits<char>::length(s.sign), s.sign) != 0) continue;
      t.compare = s.compare;
      t.value = number(text, word.substr(at + std::char_traits<char>::length(s.sign)), info);
      return t;
    }
    refuse(text, "'" + word + "' has nothing to compare with");
  }

  static double number(const std::string& text, const std::string& word, const StreamInfo& info) {
    for (std::size_t i = 0; i < info.symbols.size(); ++i)
      if (info.symbols[i] == word) return static_cast<double>(i);
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (word.empty() || *end)
      refuse(text, "'" + word + "' is " +
                       (info.symbols.empty() ? "not a number" : "neither a number nor a symbol of the stream"));
    return value;
  }

  static bool holds(const Term& t, double x) {
    switch (t.compare) {
      case Compare::Less:
        return x < t.value;
      case Compare::LessEqual:
        return x <= t.value;
      case Compare::Greater:
        return x > t.value;
      case Compare::GreaterEqual:
        return x >= t.value;
      case Compare::Equal:
        return x == t.value;
      case Compare::Unequal:
        return x != t.value;
      case Compare::Finite:
        return std::isfinite(x);
    }
    return false;
  }

  template <typename T>
  static double as(const void* sample, uint64_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(sample) + i * sizeof value, sizeof value);
    return static_cast<double>(value);
  }
  double element(const void* sample, uint64_t i) const {
    switch (dtype_) {
      case DType::Bool:
      case DType::U8:
        return as<uint8_t>(sample, i);
      case DType::I8:
        return as<int8_t>(sample, i);
      case DType::I16:
        return as<int16_t>(sample, i);
      case DType::U16:
        return as<uint16_t>(sample, i);
      case DType::I32:
        return as<int32_t>(sample, i);
      case DType::U32:
        return as<uint32_t>(sample, i);
      case DType::I64:
        return as<int64_t>(sample, i);
      case DType::U64:
        return as<uint64_t>(sample, i);
      case DType::F32:
        return as<float>(sample, i);
      default:
        return as<double>(sample, i);
    }
  }

  DType dtype_;
  uint64_t count_;
  std::vector<Term> terms_;
};

namespace detail {

// Escapes a text as the value of an option in an address.
inline std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '%')
      out += "%25";
    else if (c == '&')
      out += "%26";
    else if (c == '#')
      out += "%23";
    else
      out += c;
  }
  return out;
}

}  // namespace detail

// Produces the samples that satisfy a condition. Their number is not known in advance.
class FilterProducer final : public WrappedProducer {
 public:
  FilterProducer(std::shared_ptr<Producer> inner, std::function<bool(const HTensor&)> keep)
      : WrappedProducer(std::move(inner)), keep_(std::move(keep)) {}
  // `where`: as the option where= of an address, "value[0]>=0.5,value!=3".
  FilterProducer(std::shared_ptr<Producer> inner, const std::string& where)
      : WrappedProducer(std::move(inner)), where_(where) {
    const std::optional<StreamInfo> info = known_samples();
    if (!info) throw Error(ErrorKind::Usage, "where=" + where + ": the producer has no sample");
    keep_ = Condition(where, *info);
  }
  WrapperOption option() const override {
    if (where_.empty()) return {};
    return {WrapperOption::Acts::Where, "where=" + detail::escaped(where_)};
  }
  HTensor next() override {
    for (;;) {
      HTensor sample = inner_->next();
      if (!sample || keep_(sample)) return sample;
    }
  }
  std::size_t size() const override { return 0; }
  int64_t read(uint64_t, void*) override { return -1; }

 private:
  bool go_to(uint64_t index) override {
    if (!inner_->seek(epoch(), 0)) return false;
    for (; index > 0; --index)
      if (!next()) throw Error(ErrorKind::Stream, "filter: the pass has become shorter");
    return true;
  }

  std::function<bool(const HTensor&)> keep_;
  std::string where_;
};

// Produces the samples with these ascending indices. `together` > 1: groups of that many samples, from index *
// together.
class PickProducer final : public WrappedProducer {
 public:
  PickProducer(std::shared_ptr<Producer> inner, std::shared_ptr<const std::vector<uint64_t>> numbers,
               uint64_t together = 1)
      : WrappedProducer(std::move(inner)), numbers_(std::move(numbers)), together_(together), info_(known_samples()) {
    if (!info_) throw Error(ErrorKind::Usage, "picking samples: the producer does not describe them");
    info_->size = size();
    const std::size_t bytes = std::max<std::size_t>(1, info_->sample_bytes());
    room_ = std::max<std::size_t>(1, (1 << 14) / bytes);
    scratch_.resize(room_ * bytes);
    by_number_ = inner_->read_at(nullptr, 0, nullptr);
    char none = 0;
    in_blocks_ = inner_->read(0, &none) >= 0;
  }
  HTensor next() override {
    if (at_ == size()) return {};
    HTensor sample(info_->dtype, info_->sample);
    return read(1, sample.mutable_bytes()) == 1 ? sample : HTensor();
  }
  std::size_t size() const override { return numbers_->size() * together_; }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    auto* out = static_cast<char*>(to);
    n = std::min<uint64_t>(n, size() - at_);
    for (uint64_t i = 0; i < n; ++i, ++at_, out += info_->sample_bytes()) {
      const uint64_t number = number_of(at_);
      if (by_number_ ? !inner_->read_at(&number, 1, out) : !pass_to(number) || take(1, out) != 1)
        return static_cast<int64_t>(i);
    }
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (!by_number_) return false;
    auto* out = static_cast<char*>(to);
    for (uint64_t i = 0; i < n; ++i, out += info_->sample_bytes()) {
      const uint64_t number = number_of(numbers[i]);
      if (!inner_->read_at(&number, 1, out)) return false;
    }
    return true;
  }

 private:
  uint64_t number_of(uint64_t i) const { return (*numbers_)[i / together_] * together_ + i % together_; }

  // Reads up to n samples of the source, contiguously.
  uint64_t take(uint64_t n, char* to) {
    uint64_t got = 0;
    if (in_blocks_) {
      got = static_cast<uint64_t>(std::max<int64_t>(0, inner_->read(n, to)));
    } else {
      for (; got < n; ++got, to += info_->sample_bytes()) {
        const HTensor sample = inner_->next();
        if (!sample) break;
        std::memcpy(to, sample.bytes(), info_->sample_bytes());
      }
    }
    inner_at_ += got;
    return got;
  }
  bool pass_to(uint64_t number) {
    while (inner_at_ < number)
      if (take(std::min(room_, number - inner_at_), scratch_.data()) == 0) return false;
    return true;
  }
  bool go_to(uint64_t index) override {
    at_ = std::min<uint64_t>(index, size());
    inner_at_ = !by_number_ && at_ > 0 && at_ < size() ? number_of(at_) : 0;
    return inner_->seek(epoch(), inner_at_);
  }

  std::shared_ptr<const std::vector<uint64_t>> numbers_;
  uint64_t together_;
  std::optional<StreamInfo> info_;
  std::vector<char> scratch_;
  uint64_t room_ = 1;  // samples that fit in scratch_
  bool by_number_ = false, in_blocks_ = false;
  uint64_t at_ = 0, inner_at_ = 0;
};

// Maps every sample by a pure function.
class MapProducer final : public WrappedProducer {
 public:
  MapProducer(std::shared_ptr<Producer> inner, std::function<HTensor(const HTensor&)> change)
      : WrappedProducer(std::move(inner)), change_(std::move(change)) {}
  HTensor next() override {
    const HTensor sample = inner_->next();
    return sample ? change_(sample) : HTensor();
  }
  std::optional<StreamInfo> describe() override { return std::nullopt; }
  int64_t read(uint64_t, void*) override { return -1; }

 private:
  std::function<HTensor(const HTensor&)> change_;
};

}  // namespace harmonics
