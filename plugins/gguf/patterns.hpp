// Patterns that divide a text into the words that byte-pair encoding works on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gguf {

// A family of pre-tokenizers, by the name in tokenizer.ggml.pre.
struct WordRule {
  std::vector<std::string_view> names;
  std::vector<const char*> patterns;  // each divides what the ones before have left: matches, and what is between them
  bool whole_words = false;           // a word that is a token is taken as it is, without merging
  bool adds_bos = false;              // unless the file says otherwise
};
const std::vector<WordRule>& word_rules();
const WordRule* find_word_rule(std::string_view name);  // null: unknown

// Compiled patterns. Used by any threads at once.
class WordDivision {
 public:
  explicit WordDivision(const std::vector<const char*>& patterns);
  ~WordDivision();
  WordDivision(const WordDivision&) = delete;
  WordDivision& operator=(const WordDivision&) = delete;

  // The words of a text in UTF-8; together they are the text.
  std::vector<std::string_view> divide(std::string_view text) const;

 private:
  struct Pattern;
  std::vector<std::unique_ptr<Pattern>> patterns_;
};

}  // namespace gguf
