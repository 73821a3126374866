// Division of a text into the words that a vocabulary's model works on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/patterns.hpp"
#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// Used by any threads at once.
class WordDivision {
 public:
  explicit WordDivision(const std::vector<Division>& steps);
  // The words of a text in UTF-8; `first`: the text stands at the beginning.
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
