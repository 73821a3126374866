#include "vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "byte_pairs.hpp"
#include "sentence_pieces.hpp"

namespace gguf {

using namespace harmonics;

namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";

// An id of the vocabulary, or -1 if the file has no such key.
int32_t id_of(const GgufFile& file, const std::string& path, const char* key, size_t tokens) {
  const GgufValue* value = file.find(key);
  if (!value) return -1;
  const auto id = value->integer();
  if (!id) refuse(path, key, "is no integer");
  if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;  // how converters write "none"
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens)
    refuse(path, key, "is " + std::to_string(*id) + "; there are " + std::to_string(tokens) + " tokens");
  return static_cast<int32_t>(*id);
}

void expect_length(const std::string& path, const char* key, size_t found, size_t tokens) {
  if (found != tokens)
    refuse(path, key, "has " + std::to_string(found) + " items; there are " + std::to_string(tokens) + " tokens");
}

}  // namespace

void refuse(const std::string& path, const std::string& key, const std::string& what) {
  throw Error(ErrorKind::Weights, "'" + path + "': the metadata '" + key + "' " + what);
}

std::string text_of(const GgufFile& file, const std::string& path, const char* key, const char* otherwise) {
  const GgufValue* value = file.find(key);
  if (!value) return otherwise;
  const auto text = value->text();
  if (!text) refuse(path, key, "is no text");
  return std::string(*text);
}

bool bool_of(const GgufFile& file, const std::string& path, const char* key, bool otherwise) {
  const GgufValue* value = file.find(key);
  if (!value) return otherwise;
  const auto truth = value->truth();
  if (!truth) refuse(path, key, "is no bool");
  return *truth;
}

Vocabulary read_vocabulary(const GgufFile& file, const std::string& path, bool bos_by_default) {
  const GgufValue* list = file.find(kTokens);
  const auto texts = list ? list->texts() : std::nullopt;
  if (!texts) refuse(path, kTokens, list ? "is no list of texts" : "is missing");
  if (texts->empty() || texts->size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    refuse(path, kTokens, "has " + std::to_string(texts->size()) + " items");
  Vocabulary vocabulary;
  vocabulary.tokens.resize(texts->size());
  for (size_t i = 0; i < texts->size(); ++i) vocabulary.tokens[i].text = (*texts)[i];
  if (const GgufValue* scores = file.find("tokenizer.ggml.scores")) {
    const auto all = scores->numbers();
    if (!all) refuse(path, "tokenizer.ggml.scores", "is no list of numbers");
    expect_length(path, "tokenizer.ggml.scores", all->size(), texts->size());
    for (size_t i = 0; i < all->size(); ++i) {
      if (std::isnan((*all)[i])) refuse(path, "tokenizer.ggml.scores", "has a score that is not a number");
      vocabulary.tokens[i].score = static_cast<float>((*all)[i]);
    }
  }
  if (const GgufValue* kinds = file.find("tokenizer.ggml.token_type")) {
    const auto all = kinds->integers();
    if (!all) refuse(path, "tokenizer.ggml.token_type", "is no list of integers");
    expect_length(path, "tokenizer.ggml.token_type", all->size(), texts->size());
    for (size_t i = 0; i < all->size(); ++i) {
      if ((*all)[i] < 1 || (*all)[i] > 6)
        refuse(path, "tokenizer.ggml.token_type", "has the type " + std::to_string((*all)[i]) + "; it is 1 to 6");
      vocabulary.tokens[i].kind = static_cast<TokenKind>((*all)[i]);
    }
  }
  const size_t count = texts->size();
  vocabulary.bos = id_of(file, path, "tokenizer.ggml.bos_token_id", count);
  vocabulary.eos = id_of(file, path, "tokenizer.ggml.eos_token_id", count);
  vocabulary.unknown = id_of(file, path, "tokenizer.ggml.unknown_token_id", count);
  vocabulary.padding = id_of(file, path, "tokenizer.ggml.padding_token_id", count);
  vocabulary.adds_bos = bool_of(file, path, "tokenizer.ggml.add_bos_token", bos_by_default);
  return vocabulary;
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const Token& token = vocabulary_.tokens[i];
    longest_ = std::max(longest_, token.text.size());
    const bool special = token.kind == TokenKind::control || token.kind == TokenKind::user_defined;
    if (special && !token.text.empty()) specials_[token.text[0]].push_back(static_cast<int32_t>(i));
  }
  for (auto& [first, ids] : specials_)
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return vocabulary_[a].text.size() > vocabulary_[b].text.size(); });
}

TextTokenizerInfo Tokenizer::info() const {
  return {vocabulary_.tokens.size(), vocabulary_.bos,     vocabulary_.eos,
          vocabulary_.unknown,       vocabulary_.padding, longest_};
}

int32_t Tokenizer::special_at(std::string_view text, bool control) const {
  const auto at = specials_.find(text[0]);
  if (at == specials_.end()) return -1;
  for (const int32_t id : at->second) {
    const Token& token = vocabulary_[id];
    if ((control || token.kind == TokenKind::user_defined) && text.substr(0, token.text.size()) == token.text)
      return id;
  }
  return -1;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, uint32_t flags) const {
  std::vector<int32_t> ids;
  if ((flags & HX_ENCODE_BOS) && vocabulary_.adds_bos && vocabulary_.bos >= 0) ids.push_back(vocabulary_.bos);
  bool first = true;
  size_t start = 0;
  const auto part = [&](size_t end) {
    if (end > start) encode_part(text.substr(start, end - start), first, ids);
  };
  for (size_t at = 0; at < text.size();) {
    const int32_t id = special_at(text.substr(at), (flags & HX_ENCODE_SPECIAL) != 0);
    if (id < 0) {
      ++at;
      continue;
    }
    part(at);
    ids.push_back(id);
    first = true;
    start = at += vocabulary_[id].text.size();
  }
  part(text.size());
  if ((flags & HX_ENCODE_EOS) && vocabulary_.eos >= 0) ids.push_back(vocabulary_.eos);
  return ids;
}

std::string Tokenizer::decode(int32_t id, int32_t previous) const {
  if (!vocabulary_.has(id))
    throw Error(ErrorKind::Usage, "the id " + std::to_string(id) + " is outside the vocabulary, 0 to " +
                                      std::to_string(vocabulary_.tokens.size() - 1));
  const TokenKind kind = vocabulary_[id].kind;
  if (kind == TokenKind::control) return previous == HX_DECODE_WRITTEN ? vocabulary_[id].text : "";
  if (kind == TokenKind::unknown) return "\xEF\xBF\xBD";
  std::string bytes = bytes_of(id);
  const bool starts = previous == -1 || previous == vocabulary_.bos;
  if (starts && drops_first_space() && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
  return bytes;
}

std::unique_ptr<Tokenizer> open_tokenizer(std::string_view bytes, const std::string& path) {
  const GgufFile file = read_gguf(bytes, {path, ErrorKind::Weights});
  constexpr const char* kModel = "tokenizer.ggml.model";
  if (!file.find(kModel))
    throw Error(ErrorKind::Weights, "'" + path + "' has no tokenizer in it: the metadata '" + kModel + "' is missing")
        .note("give the model's tokenizer as a file of its own");
  const std::string model = text_of(file, path, kModel, "");
  if (model == "llama") return open_sentence_pieces(file, path);
  if (model == "gpt2") return open_byte_pairs(file, path);
  refuse(path, kModel,
         "is '" + model + "'; the kinds that can be read are llama (SentencePiece) and gpt2 (byte pairs)");
}

}  // namespace gguf
