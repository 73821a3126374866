// Small vocabularies for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokens/tokenizer.hpp"

namespace harmonics::tokens::testing {

using Ids = std::vector<int32_t>;

constexpr const char* kMark = "\xE2\x96\x81";

inline Vocabulary vocabulary_of(ModelKind model, const std::vector<std::pair<std::string, double>>& tokens) {
  Vocabulary vocabulary;
  vocabulary.model = model;
  for (const auto& [text, score] : tokens) {
    Token token;
    token.text = text;
    token.score = score;
    vocabulary.tokens.push_back(std::move(token));
  }
  return vocabulary;
}

// Returns a WordPiece vocabulary with "##" and these tokens; the first is the unknown token.
inline Vocabulary words_of(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, double>> tokens = {{"[UNK]", 0}};
  for (const std::string& word : words) tokens.emplace_back(word, 0);
  Vocabulary vocabulary = vocabulary_of(ModelKind::word_pieces, tokens);
  vocabulary.tokens[0].kind = TokenKind::control;
  vocabulary.unknown = 0;
  vocabulary.continuing = "##";
  vocabulary.longest_word = 100;
  return vocabulary;
}

inline Ids encoded(const Vocabulary& vocabulary, const std::string& text, uint32_t flags = 0) {
  return make_tokenizer(vocabulary, "test")->encode(text, flags);
}

inline std::string decoded(const TextTokenizer& tokenizer, const Ids& ids) {
  std::string text;
  int32_t previous = -1;
  for (const int32_t id : ids) {
    text += tokenizer.decode(id, previous);
    previous = id;
  }
  return text;
}

}  // namespace harmonics::tokens::testing
