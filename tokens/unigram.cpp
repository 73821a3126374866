// Unigram vocabularies (Kudo 2018): divides a word into the tokens with the highest sum of scores.
#include <algorithm>
#include <limits>

#include "tokens/model.hpp"

namespace harmonics::tokens {

namespace {

// An unknown character scores this much below the lowest score, as in sentencepiece.
constexpr double kUnknownPenalty = 10;

// The best path to the end of a token.
template <typename Score>
struct PathEnd {
  Score score = 0;
  size_t begin = std::numeric_limits<size_t>::max();  // start of its last token; none: not reached
  int32_t id = -1;
};

class Unigram final : public Model {
 public:
  Unigram(const Vocabulary& vocabulary, const std::string& path) : vocabulary_(vocabulary), bytes_(vocabulary, path) {
    double lowest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      const Token& token = vocabulary.tokens[i];
      const bool user_defined = token.kind == TokenKind::user_defined && !vocabulary.sums_doubles;
      const bool normal = token.kind == TokenKind::normal || (token.kind == TokenKind::user_defined && token.of_model);
      if (normal || vocabulary.sums_doubles) lowest = std::min(lowest, token.score);
      if (normal) highest_ = std::max(highest_, token.score);
      if ((normal || user_defined) && !token.text.empty()) sorted_.push_back(static_cast<int32_t>(i));
    }
    unknown_score_ = lowest - kUnknownPenalty;
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [&](int32_t a, int32_t b) { return vocabulary_[a].text < vocabulary_[b].text; });
    if (vocabulary.unknown < 0) refuse(path, vocabulary.tokens_place, "has no token for unknown characters");
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (vocabulary_.sums_doubles)
      encode_by<double>(word, ids);
    else
      encode_by<float>(word, ids);
  }

  std::string bytes_of(int32_t id) const override {
    if (vocabulary_[id].kind == TokenKind::byte) return std::string(1, bytes_.byte_of(id));
    return spaced(vocabulary_[id].text, vocabulary_.space_mark);
  }

 private:
  // Calls `found` with each token that is a prefix of the text, the shortest first.
  template <typename Found>
  void for_prefixes(std::string_view text, Found found) const {
    auto begin = sorted_.begin(), end = sorted_.end();
    for (size_t depth = 0; depth < text.size() && begin != end; ++depth) {
      const auto byte_of = [&](int32_t id) -> int {
        const std::string& own = vocabulary_[id].text;
        return depth < own.size() ? static_cast<unsigned char>(own[depth]) : -1;
      };
      const int byte = static_cast<unsigned char>(text[depth]);
      begin = std::lower_bound(begin, end, byte, [&](int32_t id, int wanted) { return byte_of(id) < wanted; });
      end = std::upper_bound(begin, end, byte, [&](int wanted, int32_t id) { return wanted < byte_of(id); });
      if (begin != end && vocabulary_[*begin].text.size() == depth + 1) found(*begin);
    }
  }

  template <typename Score>
  void encode_by(std::string_view word, std::vector<int32_t>& ids) const {
    std::vector<PathEnd<Score>> ends(word.size() + 1);
    const auto consider = [&](size_t begin, size_t end, double score, int32_t id) {
      PathEnd<Score>& target = ends[end];
      if (target.id >= 0 && !(score > static_cast<double>(target.score))) return;
      target = {static_cast<Score>(score), begin, id};
    };
    for (size_t at = 0; at < word.size();) {
      const size_t character = std::min(character_length(word[at]), word.size() - at);
      const Score before = ends[at].score;
      bool single = false;
      for_prefixes(word.substr(at), [&](int32_t id) {
        const Token& token = vocabulary_[id];
        const auto length = static_cast<double>(token.text.size());
        const bool own = token.kind != TokenKind::user_defined || token.of_model;
        const double score = own ? token.score : length * highest_ - 0.1;
        consider(at, at + token.text.size(), score + static_cast<double>(before), id);
        single = single || token.text.size() == character;
      });
      if (!single)
        consider(at, at + character, static_cast<double>(static_cast<Score>(unknown_score_) + before),
                 vocabulary_.unknown);
      at += character;
    }
    std::vector<std::pair<size_t, size_t>> path;  // begin and end of each token
    for (size_t end = word.size(); end > 0; end = ends[end].begin) path.emplace_back(ends[end].begin, end);
    bool unknown = false;  // whether the last id is the unknown token
    for (auto step = path.rbegin(); step != path.rend(); ++step) {
      const int32_t id = ends[step->second].id;
      const std::string_view text = word.substr(step->first, step->second - step->first);
      if (id == vocabulary_.unknown && vocabulary_.byte_fallback && bytes_.add(text, ids)) {
        unknown = false;
        continue;
      }
      if (id != vocabulary_.unknown || !unknown || !vocabulary_.joins_unknown) ids.push_back(id);
      unknown = id == vocabulary_.unknown;
    }
  }

  const Vocabulary& vocabulary_;
  ByteTokens bytes_;
  std::vector<int32_t> sorted_;  // ids sorted by text; duplicates keep the order of their ids
  double unknown_score_ = 0, highest_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

std::unique_ptr<Model> make_unigram(const Vocabulary& vocabulary, const std::string& path) {
  return std::make_unique<Unigram>(vocabulary, path);
}

}  // namespace harmonics::tokens
