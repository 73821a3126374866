// SentencePiece's compiled table of replacements (precompiled_charsmap): a trie of prefixes as a double array, and the
// texts that replace them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

class Charsmap {
 public:
  // Throws ErrorKind::Weights for bytes that are no such table.
  explicit Charsmap(std::string_view compiled);
  // Replaces the longest known prefix at each character, else keeps the character. `text` is valid UTF-8.
  std::string operator()(std::string_view text) const;

 private:
  // Length and replacement of the longest prefix; 0: none.
  size_t longest(std::string_view text, std::string_view& replacement) const;
  uint32_t unit(size_t at) const { return at < units_.size() ? units_[at] : 0; }

  std::vector<uint32_t> units_;
  std::string texts_;  // each ended by a zero
};

}  // namespace harmonics::tokens
