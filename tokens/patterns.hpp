// Regular expressions that divide a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

// A part of a text: a match, or what is between two matches.
struct Piece {
  std::string_view text;
  bool match = false;
};

// A compiled expression over characters. Used by any threads at once.
class Pattern {
 public:
  // Throws ErrorKind::Weights for an expression that cannot be compiled.
  explicit Pattern(const std::string& text);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // The pieces of a text in UTF-8, none of them empty; together they are the text.
  std::vector<Piece> divide(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace harmonics::tokens
