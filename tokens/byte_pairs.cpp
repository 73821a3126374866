// Byte-pair encoding (Sennrich et al. 2016, Radford et al. 2019): merges adjacent parts of a word, in the order of a
// list of merges.
#include <array>
#include <limits>
#include <optional>

#include "formats/utf8.hpp"
#include "tokens/model.hpp"
#include "tokens/pair_merging.hpp"
#include "tokens/symbol_table.hpp"

namespace harmonics::tokens {

namespace {

// Maps printable characters to bytes: a byte is written as itself, or as a character from U+0100 on.
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
  // Appends the bytes that a text in the byte alphabet encodes. Returns false if a character is not in the alphabet.
  bool append(std::string_view text, std::string& out) const {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      while (at < text.size() && text[at] >= '!' && text[at] <= '~') ++at;  // most bytes are written as themselves
      out.append(text, begin, at - begin);
      if (at == text.size()) break;
      const auto c = static_cast<unsigned char>(text[at]);
      uint32_t code = c;
      size_t length = 1;
      if (c >= 0xC0 && c < 0xE0 && at + 1 < text.size()) {
        code = (c & 0x1Fu) << 6 | (static_cast<unsigned char>(text[at + 1]) & 0x3Fu);
        length = 2;
      } else if (c >= 0x80) {
        return false;
      }
      if (code >= values_.size() || values_[code] < 0) return false;
      out += static_cast<char>(values_[code]);
      at += length;
    }
    return true;
  }

 private:
  std::array<int, 324> values_;
};

// The symbols of a word are its bytes, if the vocabulary has a byte alphabet, else its characters.
class BytePairs final : public Model {
 public:
  BytePairs(const Vocabulary& vocabulary, const std::string& path)
      : vocabulary_(vocabulary), byte_tokens_(vocabulary, path) {
    const ByteAlphabet alphabet;
    const std::vector<Token>& tokens = vocabulary.tokens;
    size_t bytes = 0;
    for (const Token& token : tokens) bytes += token.text.size();
    symbols_.reserve(tokens.size(), bytes);
    std::string text;
    std::vector<int32_t> known;
    known.reserve(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      text.clear();
      const bool plain = (tokens[i].kind == TokenKind::normal || tokens[i].kind == TokenKind::unused ||
                          (tokens[i].kind == TokenKind::user_defined && tokens[i].of_model)) &&
                         append(tokens[i].text, alphabet, text);
      symbols_.append(plain ? text : tokens[i].text);
      if (plain && !text.empty()) known.push_back(static_cast<int32_t>(i));
    }
    symbols_.know(known);
    read_merges(path, alphabet);
    for (size_t byte = 0; byte < bytes_.size(); ++byte)  // some may occur only in merges
      bytes_[byte] = vocabulary.byte_alphabet ? byte_symbol(static_cast<char>(byte)) : -1;
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (word.empty()) return;
    if (vocabulary_.whole_words)
      if (const int32_t whole = symbols_.find(word); whole >= 0 && vocabulary_.has(whole)) return ids.push_back(whole);
    const auto join = [&](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
      if (a.id < 0 || b.id < 0) return std::nullopt;
      const MergeTable::Found found = merges_.find(a.id, b.id);
      if (found.place < 0) return std::nullopt;
      return Joined{static_cast<double>(found.place), found.joined};
    };
    bool unknown = false;  // whether the last id is the unknown token
    for (const Symbol& symbol : merge_pairs(symbols_of(word), join)) {
      if (vocabulary_.has(symbol.id)) {
        ids.push_back(symbol.id);
        unknown = false;
        continue;
      }
      const std::string_view text = word.substr(symbol.begin, symbol.end - symbol.begin);
      if (vocabulary_.byte_alphabet && vocabulary_.word_end.empty())
        unknown = add_bytes(text, unknown, ids);
      else if (vocabulary_.byte_fallback && byte_tokens_.add(text, ids))
        unknown = false;
      else if (vocabulary_.unknown >= 0 && !(unknown && vocabulary_.joins_unknown))
        ids.push_back(vocabulary_.unknown), unknown = true;
    }
  }

  std::string bytes_of(int32_t id) const override {
    if (vocabulary_[id].kind == TokenKind::byte) return std::string(1, byte_tokens_.byte_of(id));
    std::string text(symbols_[id]);
    if (const std::string& end = vocabulary_.word_end;
        !end.empty() && text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0)
      text.resize(text.size() - end.size());
    return spaced(text, vocabulary_.space_mark);
  }

 private:
  // Appends the text of a symbol, decoded to bytes if the vocabulary has a byte alphabet. Returns false if a character
  // is not in that alphabet.
  bool append(std::string_view text, const ByteAlphabet& alphabet, std::string& to) const {
    if (vocabulary_.byte_alphabet) return alphabet.append(text, to);
    to += text;
    return true;
  }
  int32_t byte_symbol(char byte) const { return symbols_.find(std::string_view(&byte, 1)); }

  struct Decoded {
    std::string text;  // left and right part
    size_t left = 0;   // bytes
    uint32_t left_hash = 0, right_hash = 0;
  };
  struct Numbered {
    int32_t left = -1, right = -1, joined = -1;
  };
  void read_merges(const std::string& path, const ByteAlphabet& alphabet) {
    const MergeList& merges = vocabulary_.merges;
    if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) - vocabulary_.tokens.size() * 4)
      refuse(path, vocabulary_.merges_place, "has too many items");
    merges_ = MergeTable(merges.size());
    // Each merge is decoded, then its symbols are looked up, then it is added. In between, slots of both tables are
    // fetched.
    std::array<Decoded, kAhead> decoded;
    std::array<Numbered, kAhead> numbered;
    int32_t joined = -1;
    for (size_t i = 0; i < merges.size() + 2 * kAhead; ++i) {
      Decoded& entry = decoded[i % kAhead];
      Numbered& found = numbered[i % kAhead];
      if (i >= 2 * kAhead) merges_.add(found.left, found.right, {static_cast<int32_t>(i - 2 * kAhead), found.joined});
      if (i >= kAhead && i - kAhead < merges.size()) {
        // Symbols that occur only in merges get numbers after those of the tokens.
        const std::string_view text = entry.text;
        found.left = symbols_.number_of(text.substr(0, entry.left), entry.left_hash);
        found.right = symbols_.number_of(text.substr(entry.left), entry.right_hash);
        // Most vocabularies have their merged tokens in the order of the merges.
        found.joined = joined = symbols_.finds(joined + 1, text) ? joined + 1 : symbols_.number_of(text);
        merges_.prefetch(found.left, found.right);
      }
      if (i < merges.size()) decode_merge(path, alphabet, i, entry);
    }
  }
  void decode_merge(const std::string& path, const ByteAlphabet& alphabet, size_t i, Decoded& entry) const {
    const Merge merge = vocabulary_.merges[i];
    std::string& text = entry.text;
    text.clear();
    bool whole = append(merge.left, alphabet, text);
    entry.left = text.size();
    whole = whole && append(merge.right, alphabet, text);
    if (!whole || entry.left == 0 || text.size() == entry.left)
      refuse(path, vocabulary_.merges_place,
             "has the item " + std::to_string(i) + ", " +
                 shown_name(std::string(merge.left) + " " + std::string(merge.right)) +
                 ", which is not two parts with a space between them");
    entry.left_hash = SymbolTable::hash_of(std::string_view(text).substr(0, entry.left));
    entry.right_hash = SymbolTable::hash_of(std::string_view(text).substr(entry.left));
    symbols_.prefetch(entry.left_hash);
    symbols_.prefetch(entry.right_hash);
  }

  std::vector<Symbol> symbols_of(std::string_view word) const {
    std::vector<Symbol> symbols;
    if (vocabulary_.byte_alphabet) {
      for (size_t i = 0; i < word.size(); ++i)
        symbols.push_back({i, i + 1, bytes_[static_cast<unsigned char>(word[i])]});
      if (!vocabulary_.word_end.empty())
        symbols.back().id = symbols_.find(std::string(1, word.back()) + vocabulary_.word_end);
      return symbols;
    }
    for (size_t at = 0; at < word.size();) {
      const size_t end = std::min(at + character_length(word[at]), word.size());
      std::string text(word.substr(at, end - at));
      if (end == word.size()) text += vocabulary_.word_end;
      symbols.push_back({at, end, symbols_.find(text)});
      at = end;
    }
    return symbols;
  }

  // `unknown`: whether the last id is the unknown token. Returns the same of the new last id.
  bool add_bytes(std::string_view text, bool unknown, std::vector<int32_t>& ids) const {
    for (const char c : text) {
      const int32_t byte = bytes_[static_cast<unsigned char>(c)];
      if (vocabulary_.has(byte))
        ids.push_back(byte), unknown = false;
      else if (vocabulary_.unknown >= 0 && !(unknown && vocabulary_.joins_unknown))
        ids.push_back(vocabulary_.unknown), unknown = true;
    }
    return unknown;
  }

  const Vocabulary& vocabulary_;
  ByteTokens byte_tokens_;
  SymbolTable symbols_;  // decoded texts of tokens by id, then symbols that occur only in merges
  MergeTable merges_;
  std::array<int32_t, 256> bytes_{};
};

}  // namespace

std::unique_ptr<Model> make_byte_pairs(const Vocabulary& vocabulary, const std::string& path) {
  return std::make_unique<BytePairs>(vocabulary, path);
}

}  // namespace harmonics::tokens
