// Interface and shared parts of the tokenization models.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// Thread-safe.
class Model {
 public:
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
  // Returns the bytes of a token that is neither control nor unknown.
  virtual std::string bytes_of(int32_t id) const = 0;
  virtual ~Model() = default;
};

// The model keeps a reference to the vocabulary. Throws ErrorKind::Weights; `path` is for messages.
std::unique_ptr<Model> make_byte_pairs(const Vocabulary& vocabulary, const std::string& path);
std::unique_ptr<Model> make_sentence_pieces(const Vocabulary& vocabulary, const std::string& path);
std::unique_ptr<Model> make_unigram(const Vocabulary& vocabulary, const std::string& path);
std::unique_ptr<Model> make_word_pieces(const Vocabulary& vocabulary, const std::string& path);

[[noreturn]] void refuse(const std::string& path, const std::string& place, const std::string& what);

// Tokens of single bytes: "<0x0A>".
class ByteTokens {
 public:
  ByteTokens(const Vocabulary& vocabulary, const std::string& path);
  // Appends the tokens of all bytes. Returns false and appends nothing if a byte has no token.
  bool add(std::string_view bytes, std::vector<int32_t>& ids) const;
  char byte_of(int32_t id) const { return values_.at(id); }

 private:
  std::array<int32_t, 256> ids_;
  std::unordered_map<int32_t, char> values_;
};

// Returns the text with a space in place of each mark.
std::string spaced(std::string_view text, std::string_view mark);

// Returns the length in bytes of a UTF-8 character, given its first byte.
inline size_t character_length(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

}  // namespace harmonics::tokens
