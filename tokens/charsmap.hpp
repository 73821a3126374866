// SentencePiece's compiled table of replacements (precompiled_charsmap): a trie of prefixes as a double array, and the
// replacement texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

class Charsmap {
 public:
  // Throws ErrorKind::Weights if the bytes are malformed.
  explicit Charsmap(std::string_view compiled);
  // Replaces the longest known prefix at each character, and keeps a character without one. `text` is valid UTF-8.
  std::string operator()(std::string_view text) const;

 private:
  // Returns the length of the longest known prefix and sets its replacement; 0: no prefix is known.
  size_t longest(std::string_view text, std::string_view& replacement) const;
  uint32_t unit(size_t at) const { return at < units_.size() ? units_[at] : 0; }

  std::vector<uint32_t> units_;
  std::string texts_;  // zero-terminated replacements
};

}  // namespace harmonics::tokens
