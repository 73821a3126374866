// Divides a text into the words that a vocabulary's model encodes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/patterns.hpp"
#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// Thread-safe.
class WordDivision {
 public:
  explicit WordDivision(const std::vector<Division>& steps);
  // Returns the words of a text in UTF-8. `first`: whether the text begins the input.
  std::vector<std::string> divide(std::string_view text, bool first) const;

 private:
  struct Step {
    Division rule;
    std::unique_ptr<Pattern> pattern;
  };
  static void apply(const Step& step, std::string word, bool first, std::vector<std::string>& words);

  std::vector<Step> steps_;
};

}  // namespace harmonics::tokens
