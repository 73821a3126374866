// Tokenizers of llama2.c: the length of the longest token, then score, length and bytes of each token. Encoding starts
// with characters and merges the adjacent pair whose token has the highest score.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <harmonics/importer.hpp>

namespace llama2c {

class Vocabulary final : public harmonics::TextTokenizer {
 public:
  // `tokens`: number of tokens of the model; 0: any. Throws ErrorKind::Weights with the path, the position and the
  // value found.
  Vocabulary(std::string_view bytes, const std::string& path, uint64_t tokens);

  harmonics::TextTokenizerInfo info() const override;
  // Adds a space before the text. Characters without a token become byte tokens, or the unknown token if the vocabulary
  // has no byte tokens.
  std::vector<int32_t> encode(std::string_view text, uint32_t flags) const override;
  // Omits the space before a text's first token. The begin and end tokens have no bytes.
  std::string decode(int32_t id, int32_t previous) const override;

 private:
  struct Token {
    std::string_view piece;  // in bytes_
    float score;
  };
  void name_pieces();
  bool is_text(int32_t id) const { return id > 2 && !(has_bytes_ && id < 259); }
  int32_t find(std::string_view piece) const;  // -1: none
  std::vector<int32_t> characters(std::string_view text) const;
  std::vector<int32_t> merged(const std::vector<int32_t>& ids) const;

  std::string bytes_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // tokens of text; duplicates keep the first
  size_t longest_ = 0;
  bool has_bytes_ = false;
};

// Returns HX_PROBE_LIKELY if the first tokens are <unk>, <s> and </s>, followed by whole tokens only.
uint32_t probe_vocabulary(std::string_view first, uint64_t size);

class VocabularyFormat final : public harmonics::TokenizerFormat {
 public:
  uint32_t probe(const harmonics::FileStart& file) const override { return probe_vocabulary(file.first, file.size); }
  std::unique_ptr<harmonics::TextTokenizer> open(const harmonics::TokenizerSource& source,
                                                 const harmonics::Arguments&) const override {
    const int64_t tokens = source.metadata().integer("llama.vocab_size", 0);
    return std::make_unique<Vocabulary>(source.bytes(), source.path(), tokens > 0 ? static_cast<uint64_t>(tokens) : 0);
  }
};

}  // namespace llama2c
