// The vocabulary in the metadata of a GGUF file, and what all of its tokenizers have in common: special tokens, and
// the begin and end of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <harmonics/importer.hpp>

#include "formats/gguf.hpp"

namespace gguf {

// As numbered in tokenizer.ggml.token_type.
enum class TokenKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct Token {
  std::string text;  // as in the file
  TokenKind kind = TokenKind::normal;
  float score = 0;
};

struct Vocabulary {
  std::vector<Token> tokens;
  int32_t bos = -1, eos = -1, unknown = -1, padding = -1;
  bool adds_bos = false;

  bool has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < tokens.size(); }
  const Token& operator[](int32_t id) const { return tokens[static_cast<size_t>(id)]; }
};

// `bos_by_default`: whether texts begin with the begin id where the file does not say. Throws ErrorKind::Weights with
// path and key for lists of unlike lengths and ids outside the vocabulary.
Vocabulary read_vocabulary(const harmonics::GgufFile& file, const std::string& path, bool bos_by_default);

[[noreturn]] void refuse(const std::string& path, const std::string& key, const std::string& what);

// The value of a key, or the default; throws for another kind.
std::string text_of(const harmonics::GgufFile& file, const std::string& path, const char* key, const char* otherwise);
bool bool_of(const harmonics::GgufFile& file, const std::string& path, const char* key, bool otherwise);

// A kind of tokenizer turns text between special tokens into ids, and ids into bytes.
class Tokenizer : public harmonics::TextTokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary);
  harmonics::TextTokenizerInfo info() const final;
  // Tokens that the vocabulary marks as user-defined are found in every text; control tokens with HX_ENCODE_SPECIAL.
  std::vector<int32_t> encode(std::string_view text, uint32_t flags) const final;
  // Control tokens have no bytes.
  std::string decode(int32_t id, int32_t previous) const final;

 protected:
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // `first`: nothing, or a special token, is in front of it.
  virtual void encode_part(std::string_view text, bool first, std::vector<int32_t>& ids) const = 0;
  // Of a token that is neither control nor unknown.
  virtual std::string bytes_of(int32_t id) const = 0;
  // Whether decoding drops a space in front of a text.
  virtual bool drops_first_space() const = 0;

 private:
  // The special token that begins at the text's first byte; of several the longest. -1: none.
  int32_t special_at(std::string_view text, bool control) const;

  Vocabulary vocabulary_;
  std::unordered_map<char, std::vector<int32_t>> specials_;  // by first byte, the longest first
  size_t longest_ = 0;
};

std::unique_ptr<Tokenizer> open_tokenizer(std::string_view bytes, const std::string& path);

class TokenizerFormat final : public harmonics::TokenizerFormat {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override {
    return harmonics::is_gguf(file.first) ? HX_PROBE_CERTAIN : HX_PROBE_NO;
  }
  std::unique_ptr<harmonics::TextTokenizer> open(const harmonics::TokenizerSource& source,
                                                 const harmonics::Arguments&) const override {
    return open_tokenizer(source.bytes(), source.path());
  }
};

}  // namespace gguf
