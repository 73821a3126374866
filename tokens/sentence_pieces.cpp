#include "sentence_pieces.hpp"

#include <array>
#include <cstdio>

#include "pair_merging.hpp"

namespace harmonics::tokens {

using namespace harmonics;

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which stands for a space

// The bytes of the character at the beginning of valid UTF-8.
size_t character_length(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

class SentencePieces final : public Tokenizer {
 public:
  SentencePieces(Vocabulary from, const std::string& path, bool space_prefix)
      : Tokenizer(std::move(from)), space_prefix_(space_prefix) {
    bytes_.fill(-1);
    const std::vector<Token>& tokens = vocabulary().tokens;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      if (tokens[i].kind == TokenKind::byte) {
        unsigned byte = 0;
        int end = 0;
        if (std::sscanf(tokens[i].text.c_str(), "<0x%2X>%n", &byte, &end) != 1 || end != 6 ||
            tokens[i].text.size() != 6)
          refuse(path, "tokenizer.ggml.tokens",
                 "has a token of a byte, " + std::to_string(i) + ", whose text is not like <0x0A>");
        bytes_[byte] = id;
        values_[id] = static_cast<char>(byte);
      } else if (tokens[i].kind == TokenKind::normal || tokens[i].kind == TokenKind::user_defined) {
        ids_.emplace(tokens[i].text, id);
      }
    }
  }

 protected:
  void encode_part(std::string_view text, bool first, std::vector<int32_t>& ids) const override {
    std::string spaced;
    if (first && space_prefix_) spaced += kSpace;
    for (const char c : text)
      if (c == ' ')
        spaced += kSpace;
      else
        spaced += c;
    std::vector<Symbol> symbols;
    for (size_t at = 0; at < spaced.size();) {
      const size_t end = std::min(at + character_length(spaced[at]), spaced.size());
      symbols.push_back({at, end, find(std::string_view(spaced).substr(at, end - at))});
      at = end;
    }
    const auto join = [&](const Symbol& a, const Symbol& b) -> std::optional<Joined> {
      const int32_t id = find(std::string_view(spaced).substr(a.begin, b.end - a.begin));
      if (id < 0) return std::nullopt;
      return Joined{-static_cast<double>(vocabulary()[id].score), id};
    };
    for (const Symbol& symbol : merge_pairs(std::move(symbols), join)) {
      if (symbol.id >= 0)
        ids.push_back(symbol.id);
      else
        add_bytes(std::string_view(spaced).substr(symbol.begin, symbol.end - symbol.begin), ids);
    }
  }

  std::string bytes_of(int32_t id) const override {
    const Token& token = vocabulary()[id];
    if (token.kind == TokenKind::byte) return std::string(1, values_.at(id));
    std::string text;
    for (size_t at = 0; at < token.text.size();) {
      if (token.text.compare(at, kSpace.size(), kSpace) == 0) {
        text += ' ';
        at += kSpace.size();
      } else {
        text += token.text[at++];
      }
    }
    return text;
  }
  bool drops_first_space() const override { return space_prefix_; }

 private:
  int32_t find(std::string_view text) const {
    const auto at = ids_.find(text);
    return at == ids_.end() ? -1 : at->second;
  }
  void add_bytes(std::string_view text, std::vector<int32_t>& ids) const {
    for (const char c : text) {
      const int32_t id = bytes_[static_cast<unsigned char>(c)];
      if (id >= 0)
        ids.push_back(id);
      else if (vocabulary().unknown >= 0)
        return ids.push_back(vocabulary().unknown);  // one for the whole character
    }
  }

  bool space_prefix_;
  std::array<int32_t, 256> bytes_;
  std::unordered_map<int32_t, char> values_;           // of tokens of bytes
  std::unordered_map<std::string_view, int32_t> ids_;  // views of the vocabulary's texts; of equal ones the first
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentence_pieces(const GgufFile& file, const std::string& path) {
  if (!file.find("tokenizer.ggml.scores")) refuse(path, "tokenizer.ggml.scores", "is missing");
  return std::make_unique<SentencePieces>(read_vocabulary(file, path, true), path,
                                          bool_of(file, path, "tokenizer.ggml.add_space_prefix", true));
}

}  // namespace harmonics::tokens
