// Normalizes a text before it is divided into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/charsmap.hpp"
#include "tokens/patterns.hpp"
#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// Returns the text with `with` in place of each `what`.
std::string replaced(std::string_view text, std::string_view what, std::string_view with);

// Thread-safe.
class Normalization {
 public:
  explicit Normalization(const std::vector<Normalizer>& steps);
  // `text` is valid UTF-8.
  std::string operator()(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    Normalizer rule;
    std::unique_ptr<Pattern> pattern;  // for `replace` with an expression
    std::unique_ptr<Charsmap> charsmap;
  };
  static std::string apply(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace harmonics::tokens
