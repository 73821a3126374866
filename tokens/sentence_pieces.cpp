// SentencePiece vocabularies of merged pairs (Kudo and Richardson 2018): merges the adjacent symbols whose merged token
// has the highest score. Text without a token becomes bytes.
#include <algorithm>
#include <optional>

#include "tokens/model.hpp"
#include "tokens/pair_merging.hpp"

namespace harmonics::tokens {

namespace {

class SentencePieces final : public Model {
 public:
  SentencePieces(const Vocabulary& vocabulary, const std::string& path)
      : vocabulary_(vocabulary), bytes_(vocabulary, path) {
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      const Token& token = vocabulary.tokens[i];
      if (token.kind == TokenKind::normal || token.kind == TokenKind::user_defined)
        ids_.emplace(token.text, static_cast<int32_t>(i));
    }
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    std::vector<Symbol> symbols;
    for (size_t at = 0; at < word.size();) {
      const size_t end = std::min(at + character_length(word[at]), word.size());
      symbols.push_back({at, end, find(word.substr(at, end - at))});
      at = end;
    }
    const auto join = [&](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
      const int32_t id = find(word.substr(a.begin, b.end - a.begin));
      if (id < 0) return std::nullopt;
      return Joined{-vocabulary_[id].score, id};
    };
    for (const Symbol& symbol : merge_pairs(std::move(symbols), join)) {
      if (symbol.id >= 0)
        ids.push_back(symbol.id);
      else if (const std::string_view text = word.substr(symbol.begin, symbol.end - symbol.begin);
               !(vocabulary_.byte_fallback && bytes_.add(text, ids)) && vocabulary_.unknown >= 0)
        ids.push_back(vocabulary_.unknown);  // one id for the whole character
    }
  }

  std::string bytes_of(int32_t id) const override {
    if (vocabulary_[id].kind == TokenKind::byte) return std::string(1, bytes_.byte_of(id));
    return spaced(vocabulary_[id].text, vocabulary_.space_mark);
  }

 private:
  int32_t find(std::string_view text) const {
    const auto at = ids_.find(text);
    return at == ids_.end() ? -1 : at->second;
  }

  const Vocabulary& vocabulary_;
  ByteTokens bytes_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of the vocabulary's texts; duplicates keep the first
};

}  // namespace

std::unique_ptr<Model> make_sentence_pieces(const Vocabulary& vocabulary, const std::string& path) {
  return std::make_unique<SentencePieces>(vocabulary, path);
}

}  // namespace harmonics::tokens
