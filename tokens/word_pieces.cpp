// WordPiece vocabularies (Schuster and Nakajima 2012): repeatedly takes the longest token that the rest of the word
// begins with. A word that is not fully covered is unknown.
#include <algorithm>

#include "tokens/model.hpp"

namespace harmonics::tokens {

namespace {

class WordPieces final : public Model {
 public:
  WordPieces(const Vocabulary& vocabulary, const std::string& path) : vocabulary_(vocabulary) {
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      const Token& token = vocabulary.tokens[i];
      if (token.kind != TokenKind::normal && !(token.kind == TokenKind::user_defined && token.of_model)) continue;
      ids_.emplace(token.text, static_cast<int32_t>(i));
      longest_ = std::max(longest_, token.text.size());
    }
    if (vocabulary.unknown < 0) refuse(path, vocabulary.tokens_place, "has no token for unknown characters");
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (word.empty()) return;
    const size_t before = ids.size();
    if (vocabulary_.longest_word == 0 || count(word) <= vocabulary_.longest_word) {
      std::string rest = vocabulary_.word_start + std::string(word);
      size_t least = vocabulary_.word_start.size();  // a token must be longer than the prefix
      while (rest.size() > least) {
        const size_t length = longest_prefix(rest, least);
        if (length == 0) break;
        ids.push_back(ids_.at(std::string_view(rest).substr(0, length)));
        rest = vocabulary_.continuing + rest.substr(length);
        least = vocabulary_.continuing.size();
      }
      if (rest.size() == least) return;
    }
    ids.resize(before);
    ids.push_back(vocabulary_.unknown);
  }

  std::string bytes_of(int32_t id) const override { return vocabulary_[id].text; }

 private:
  static size_t count(std::string_view text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  size_t longest_prefix(const std::string& text, size_t least) const {
    for (size_t length = std::min(text.size(), longest_); length > least; --length)
      if (ids_.count(std::string_view(text).substr(0, length)) != 0) return length;
    return 0;
  }

  const Vocabulary& vocabulary_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of the vocabulary's texts
  size_t longest_ = 0;
};

}  // namespace

std::unique_ptr<Model> make_word_pieces(const Vocabulary& vocabulary, const std::string& path) {
  return std::make_unique<WordPieces>(vocabulary, path);
}

}  // namespace harmonics::tokens
