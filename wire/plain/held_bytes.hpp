// Received bytes that have not been read yet, stored contiguously.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace harmonics::plain {

class HeldBytes {
 public:
  void add(std::span<const std::byte> bytes) {
    if (at_ == text_.size()) text_.clear(), at_ = 0;
    if (at_ > 0 && at_ >= text_.size() / 2) text_.erase(0, at_), at_ = 0;
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  size_t size() const { return text_.size() - at_; }
  void pass(size_t bytes) { at_ += bytes; }
  // Readable bytes after the first `size` unread ones.
  size_t behind(size_t size) const { return text_.size() - at_ - size; }

 private:
  std::string text_;
  size_t at_ = 0;
};

// Returns the next line, without its end; false: more bytes are needed. Skips lines longer than a record and sets
// `longer`.
class LineCutter {
 public:
  bool next(HeldBytes& held, bool ended, std::string_view& line, bool& longer);
  size_t number() const { return number_; }  // of the last line, from 1
  void count(size_t more) { number_ += more; }

 private:
  size_t looked_ = 0, number_ = 0;
  bool passing_ = false;
};

}  // namespace harmonics::plain
