#include "byte_pairs.hpp"

#include <array>
#include <limits>

#include "formats/utf8.hpp"
#include "pair_merging.hpp"
#include "patterns.hpp"

namespace harmonics::tokens {

using namespace harmonics;

namespace {

// Vocabularies write a byte as a printable character: itself, or one from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    values_.fill(-1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      values_[printable ? byte : next++] = static_cast<int>(byte);
    }
  }
  // The bytes that a text in the alphabet stands for; none if a character is not of the alphabet.
  std::optional<std::string> bytes(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const auto c = static_cast<unsigned char>(text[at]);
      uint32_t code = c;
      size_t length = 1;
      if (c >= 0xC0 && c < 0xE0 && at + 1 < text.size()) {
        code = (c & 0x1Fu) << 6 | (static_cast<unsigned char>(text[at + 1]) & 0x3Fu);
        length = 2;
      } else if (c >= 0x80) {
        return std::nullopt;
      }
      if (code >= values_.size() || values_[code] < 0) return std::nullopt;
      out += static_cast<char>(values_[code]);
      at += length;
    }
    return out;
  }

 private:
  std::array<int, 324> values_;
};

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

class BytePairs final : public Tokenizer {
 public:
  BytePairs(Vocabulary from, const GgufFile& file, const std::string& path, const WordRule& rule)
      : Tokenizer(std::move(from)), rule_(rule), division_(rule.patterns) {
    const ByteAlphabet alphabet;
    const std::vector<Token>& tokens = vocabulary().tokens;
    texts_.reserve(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool plain = tokens[i].kind == TokenKind::normal || tokens[i].kind == TokenKind::unused;
      const auto bytes = plain ? alphabet.bytes(tokens[i].text) : std::nullopt;
      texts_.push_back(bytes ? *bytes : tokens[i].text);
      if (bytes && !bytes->empty()) symbols_.emplace(*bytes, static_cast<int32_t>(i));
    }
    for (size_t byte = 0; byte < bytes_.size(); ++byte) bytes_[byte] = find(std::string(1, static_cast<char>(byte)));
    read_merges(file, path, alphabet);
  }

 protected:
  void encode_part(std::string_view text, bool, std::vector<int32_t>& ids) const override {
    for (const std::string_view word : division_.divide(text)) encode_word(word, ids);
  }
  std::string bytes_of(int32_t id) const override { return texts_[static_cast<size_t>(id)]; }
  bool drops_first_space() const override { return false; }

 private:
  int32_t find(const std::string& text) const {
    const auto at = symbols_.find(text);
    return at == symbols_.end() ? -1 : at->second;
  }

  // Symbols that only merges know, and no token, get numbers behind the tokens'.
  int32_t symbol(const std::string& text) {
    return symbols_.emplace(text, static_cast<int32_t>(vocabulary().tokens.size() + unnamed_++)).first->second;
  }

  void read_merges(const GgufFile& file, const std::string& path, const ByteAlphabet& alphabet) {
    constexpr const char* kMerges = "tokenizer.ggml.merges";
    const GgufValue* value = file.find(kMerges);
    const auto merges = value ? value->texts() : std::nullopt;
    if (!merges) refuse(path, kMerges, value ? "is no list of texts" : "is missing");
    if (merges->size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) - vocabulary().tokens.size() * 4)
      refuse(path, kMerges, "has too many items");
    merges_.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string_view merge = (*merges)[i];
      const size_t space = merge.find(' ', 1);
      const auto left = space == std::string_view::npos ? std::nullopt : alphabet.bytes(merge.substr(0, space));
      const auto right = space == std::string_view::npos ? std::nullopt : alphabet.bytes(merge.substr(space + 1));
      if (!left || !right || left->empty() || right->empty())
        refuse(path, kMerges,
               "has the item " + std::to_string(i) + ", " + shown_name(std::string(merge)) +
                   ", which is not two parts with a space between them");
      const int32_t a = symbol(*left), b = symbol(*right), joined = symbol(*left + *right);
      merges_.emplace(key_of(a, b), Joined{static_cast<double>(i), joined});
    }
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const {
    if (rule_.whole_words)
      if (const int32_t whole = find(std::string(word)); whole >= 0 && vocabulary().has(whole))
        return ids.push_back(whole);
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < word.size(); ++i) symbols.push_back({i, i + 1, bytes_[static_cast<unsigned char>(word[i])]});
    const auto join = [&](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
      if (a.id < 0 || b.id < 0) return std::nullopt;
      const auto at = merges_.find(key_of(a.id, b.id));
      if (at == merges_.end()) return std::nullopt;
      return at->second;
    };
    for (const Symbol& symbol : merge_pairs(std::move(symbols), join)) {
      if (vocabulary().has(symbol.id)) {
        ids.push_back(symbol.id);
        continue;
      }
      for (size_t i = symbol.begin; i < symbol.end; ++i) {
        const int32_t byte = bytes_[static_cast<unsigned char>(word[i])];
        if (byte >= 0)
          ids.push_back(byte);
        else if (vocabulary().unknown >= 0)
          ids.push_back(vocabulary().unknown);
      }
    }
  }

  const WordRule& rule_;
  WordDivision division_;
  std::vector<std::string> texts_;                    // of tokens, in bytes
  std::unordered_map<std::string, int32_t> symbols_;  // by their bytes; of equal ones the first
  std::unordered_map<uint64_t, Joined> merges_;
  std::array<int32_t, 256> bytes_{};
  size_t unnamed_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> open_byte_pairs(const GgufFile& file, const std::string& path) {
  constexpr const char* kPre = "tokenizer.ggml.pre";
  const std::string name = text_of(file, path, kPre, "default");
  const WordRule* rule = find_word_rule(name);
  if (!rule) {
    std::string known;
    for (const WordRule& r : word_rules()) known += (known.empty() ? "" : ", ") + std::string(r.names.front());
    refuse(path, kPre, "is " + shown_name(name) + ", a way to divide words that is not known; known are " + known);
  }
  return std::make_unique<BytePairs>(read_vocabulary(file, path, rule->adds_bos), file, path, *rule);
}

}  // namespace harmonics::tokens
