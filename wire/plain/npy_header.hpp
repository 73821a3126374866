// The header of a NumPy array, in a file or in a stream.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

// Throws "'name' <what>; <remedy>" as ErrorKind::Stream.
[[noreturn]] void npy_refuse(const std::string& name, const std::string& what, const std::string& remedy = "");

// The header's text is a Python dictionary literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class NpyHeader {
 public:
  NpyHeader(const std::string& name, const char* text, size_t size, size_t place)
      : name_(name), text_(text), size_(size), place_(place) {
    expect('{');
    while (!accept('}')) {
      entry();
      if (accept('}')) break;
      expect(',');
    }
    space();
    if (at_ != size_) fail("the end of the header");
    if (!descr_) missing("descr");
    if (!fortran_) missing("fortran_order");
    if (!shape_) missing("shape");
  }

  const std::string& descr() const { return *descr_; }
  bool fortran() const { return *fortran_; }
  const std::vector<uint64_t>& shape() const { return *shape_; }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string found =
        at_ < size_ ? "'" + std::string(text_ + at_, std::min<size_t>(size_ - at_, 8)) + "'" : "its end";
    npy_refuse(name_, "has a damaged NPY header: found " + found + " at byte " + std::to_string(place_ + at_) +
                          ", expected " + expected);
  }
  [[noreturn]] void missing(const char* key) const {
    npy_refuse(name_, std::string("has a damaged NPY header: it has no '") + key + "'");
  }

  void space() {
    while (at_ < size_ && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    space();
    if (at_ == size_ || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'");
  }

  void entry() {
    space();
    const size_t start = at_;
    const std::string key = string("a key");
    expect(':');
    if (key == "descr" && !descr_) {
      descr_ = descr_value();
    } else if (key == "fortran_order" && !fortran_) {
      fortran_ = boolean();
    } else if (key == "shape" && !shape_) {
      shape_ = tuple();
    } else {
      at_ = start;
      fail("'descr', 'fortran_order' or 'shape', each once");
    }
  }
  std::string string(const char* what) {
    space();
    if (at_ == size_ || (text_[at_] != '\'' && text_[at_] != '"')) fail(what);
    const char quote = text_[at_++];
    const size_t start = at_;
    while (at_ < size_ && text_[at_] != quote && text_[at_] != '\\') ++at_;
    if (at_ == size_ || text_[at_] != quote) fail("the end of a string");
    return std::string(text_ + start, at_++ - start);
  }
  std::string descr_value() {
    space();
    if (at_ < size_ && text_[at_] == '[')
      npy_refuse(name_, "holds records of several fields (a structured NPY dtype)", "save each field as its own array");
    return string("a dtype such as '<f4'");
  }
  bool boolean() {
    space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      const size_t n = std::strlen(word);
      if (size_ - at_ < n || std::memcmp(text_ + at_, word, n) != 0) continue;
      at_ += n;
      return value;
    }
    fail("True or False");
  }
  std::vector<uint64_t> tuple() {
    std::vector<uint64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(number());
      if (accept(')')) break;
      expect(',');
    }
    return dims;
  }
  uint64_t number() {
    space();
    uint64_t value = 0;
    const size_t start = at_;
    for (; at_ < size_ && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
          __builtin_add_overflow(value, static_cast<uint64_t>(text_[at_] - '0'), &value)) {
        at_ = start;
        fail("a size below 2^64");
      }
    if (at_ == start) fail("a size");
    if (at_ < size_ && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }

  const std::string& name_;
  const char* text_;
  size_t size_, place_, at_ = 0;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_;
  std::optional<std::vector<uint64_t>> shape_;
};

// Errors: Stream for types other than numbers of 1 to 8 bytes.
DType dtype_of_descr(const std::string& name, const std::string& descr);

}  // namespace harmonics
