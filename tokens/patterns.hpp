// Regular expressions that divide texts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

// A part of a text: a match, or the text between two matches.
struct Piece {
  std::string_view text;
  bool match = false;
};

// A compiled expression over Unicode characters. Thread-safe.
class Pattern {
 public:
  // Throws ErrorKind::Weights if the expression does not compile.
  explicit Pattern(const std::string& text);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Returns the non-empty pieces of a text in UTF-8; joined, they are the text.
  std::vector<Piece> divide(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace harmonics::tokens
