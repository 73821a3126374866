#include "vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <harmonics/quantity.hpp>

#include "formats/utf8.hpp"
#include "tokens/families.hpp"
#include "tokens/tokenizer.hpp"

namespace gguf {

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

constexpr const char *kTokens = "tokenizer.ggml.tokens", *kModel = "tokenizer.ggml.model";
constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581

[[noreturn]] void refuse(const std::string& path, const std::string& key, const std::string& what) {
  throw Error(ErrorKind::Weights, "'" + path + "': the metadata '" + key + "' " + what);
}

// Returns the token id stored under the key, or -1 if there is none.
int32_t id_of(const GgufFile& file, const std::string& path, const char* key, size_t tokens) {
  const GgufValue* value = file.find(key);
  if (!value) return -1;
  const auto id = value->integer();
  if (!id) refuse(path, key, "is not an integer");
  if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;  // converters write "none" like this
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens)
    refuse(path, key, "is " + std::to_string(*id) + "; there are " + quantity(tokens, "token"));
  return static_cast<int32_t>(*id);
}

void expect_length(const std::string& path, const char* key, size_t found, size_t tokens) {
  if (found != tokens) refuse(path, key, "has " + quantity(found, "item") + "; there are " + quantity(tokens, "token"));
}

std::string text_of(const GgufFile& file, const std::string& path, const char* key, const char* otherwise) {
  const GgufValue* value = file.find(key);
  if (!value) return otherwise;
  const auto text = value->text();
  if (!text) refuse(path, key, "is not a string");
  return std::string(*text);
}

bool bool_of(const GgufFile& file, const std::string& path, const char* key, bool otherwise) {
  const GgufValue* value = file.find(key);
  if (!value) return otherwise;
  const auto truth = value->truth();
  if (!truth) refuse(path, key, "is not a bool");
  return *truth;
}

// Reads the tokens, as in every kind of vocabulary.
Vocabulary read_tokens(const GgufFile& file, const std::string& path) {
  const GgufValue* list = file.find(kTokens);
  const auto texts = list ? list->texts() : std::nullopt;
  if (!texts) refuse(path, kTokens, list ? "is not a list of strings" : "is missing");
  if (texts->empty() || texts->size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    refuse(path, kTokens, "has " + quantity(texts->size(), "item"));
  Vocabulary vocabulary;
  vocabulary.tokens.resize(texts->size());
  for (size_t i = 0; i < texts->size(); ++i) vocabulary.tokens[i].text = (*texts)[i];
  if (const GgufValue* scores = file.find("tokenizer.ggml.scores")) {
    const auto all = scores->numbers();
    if (!all) refuse(path, "tokenizer.ggml.scores", "is not a list of numbers");
    expect_length(path, "tokenizer.ggml.scores", all->size(), texts->size());
    for (size_t i = 0; i < all->size(); ++i) {
      if (std::isnan((*all)[i])) refuse(path, "tokenizer.ggml.scores", "has a score that is not a number");
      vocabulary.tokens[i].score = static_cast<float>((*all)[i]);
    }
  }
  if (const GgufValue* kinds = file.find("tokenizer.ggml.token_type")) {
    const auto all = kinds->integers();
    if (!all) refuse(path, "tokenizer.ggml.token_type", "is not a list of integers");
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
  vocabulary.mask = id_of(file, path, "tokenizer.ggml.mask_token_id", count);
  vocabulary.tokens_place = "the metadata '" + std::string(kTokens) + "'";
  vocabulary.merges_place = "the metadata 'tokenizer.ggml.merges'";
  for (size_t i = 0; i < count; ++i) {
    const TokenKind kind = vocabulary.tokens[i].kind;
    if (kind != TokenKind::control && kind != TokenKind::user_defined) continue;
    AddedToken added;
    added.id = static_cast<int32_t>(i);
    vocabulary.added.push_back(added);
  }
  return vocabulary;
}

// Reads whether texts begin and end with the ids. `begins` and `ends`: defaults.
void read_ends(const GgufFile& file, const std::string& path, bool begins, bool ends, Vocabulary& vocabulary) {
  vocabulary.adds_bos = bool_of(file, path, "tokenizer.ggml.add_bos_token", begins);
  vocabulary.adds_eos = bool_of(file, path, "tokenizer.ggml.add_eos_token", ends);
}

void set_byte_pairs(const GgufFile& file, const std::string& path, Vocabulary& vocabulary) {
  constexpr const char *kPre = "tokenizer.ggml.pre", *kMerges = "tokenizer.ggml.merges";
  vocabulary.model = ModelKind::byte_pairs;
  const std::string name = text_of(file, path, kPre, "default");
  if (!set_family(vocabulary, name))
    refuse(path, kPre,
           "is " + shown_name(name) + ", a way to divide words that is not known; known ones: " + family_names());
  read_ends(file, path, vocabulary.adds_bos, false, vocabulary);
  const GgufValue* value = file.find(kMerges);
  const auto merges = value ? value->texts() : std::nullopt;
  if (!merges) refuse(path, kMerges, value ? "is not a list of strings" : "is missing");
  size_t bytes = 0;
  for (const std::string_view merge : *merges) bytes += merge.size();
  vocabulary.merges.reserve(merges->size(), bytes);
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view merge = (*merges)[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos)
      refuse(path, kMerges,
             "has the item " + std::to_string(i) + ", " + shown_name(std::string(merge)) +
                 ", which is not two parts with a space between them");
    vocabulary.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
}

// Sets an id that converters may leave out, as llama.cpp does.
void default_id(const GgufFile& file, const char* key, int32_t otherwise, const Vocabulary& vocabulary, int32_t& id) {
  if (!file.find(key) && vocabulary.has(otherwise)) id = otherwise;
}

// Adds the normalizers that replace spaces by marks and put one before the text. `prefixed`: the default.
void set_space_marks(const GgufFile& file, const std::string& path, bool prefixed, Vocabulary& vocabulary) {
  const bool prefix = bool_of(file, path, "tokenizer.ggml.add_space_prefix", prefixed);
  if (prefix) vocabulary.normalizers.push_back({NormalizerKind::prepend, kSpaceMark});
  vocabulary.normalizers.push_back({NormalizerKind::replace, " ", kSpaceMark});
  vocabulary.space_mark = kSpaceMark;
  vocabulary.drops_first_space = prefix;
}

void expect_scores(const GgufFile& file, const std::string& path) {
  if (!file.find("tokenizer.ggml.scores")) refuse(path, "tokenizer.ggml.scores", "is missing");
}

void set_sentence_pieces(const GgufFile& file, const std::string& path, Vocabulary& vocabulary) {
  expect_scores(file, path);
  vocabulary.model = ModelKind::sentence_pieces;
  default_id(file, "tokenizer.ggml.unknown_token_id", 0, vocabulary, vocabulary.unknown);
  default_id(file, "tokenizer.ggml.bos_token_id", 1, vocabulary, vocabulary.bos);
  default_id(file, "tokenizer.ggml.eos_token_id", 2, vocabulary, vocabulary.eos);
  read_ends(file, path, true, false, vocabulary);
  set_space_marks(file, path, true, vocabulary);
}

void set_unigram(const GgufFile& file, const std::string& path, Vocabulary& vocabulary) {
  constexpr const char* kCharsmap = "tokenizer.ggml.precompiled_charsmap";
  expect_scores(file, path);
  vocabulary.model = ModelKind::unigram;
  vocabulary.joins_unknown = true;
  if (vocabulary.unknown < 0)
    for (size_t i = 0; i < vocabulary.tokens.size() && vocabulary.unknown < 0; ++i)
      if (vocabulary.tokens[i].kind == TokenKind::unknown) vocabulary.unknown = static_cast<int32_t>(i);
  default_id(file, "tokenizer.ggml.padding_token_id", 0, vocabulary, vocabulary.padding);
  default_id(file, "tokenizer.ggml.eos_token_id", 1, vocabulary, vocabulary.eos);
  read_ends(file, path, false, true, vocabulary);
  if (const GgufValue* value = file.find(kCharsmap)) {
    const auto bytes = value->integers();
    if (!bytes) refuse(path, kCharsmap, "is not a list of integers");
    Normalizer table;
    table.kind = NormalizerKind::charsmap;
    for (const int64_t byte : *bytes) table.text += static_cast<char>(byte & 0xFF);
    if (!table.text.empty()) vocabulary.normalizers.push_back(std::move(table));
  }
  const bool single = bool_of(file, path, "tokenizer.ggml.remove_extra_whitespaces", false);
  if (single) vocabulary.normalizers.push_back({NormalizerKind::spaces});
  set_space_marks(file, path, single, vocabulary);  // the default of llama.cpp
}

// Sets BERT's rules. Converters write "##ing" as "ing" and "the" as "\u2581the".
void set_word_pieces(const GgufFile& file, const std::string& path, Vocabulary& vocabulary) {
  const auto id = [&](const char* key, const char* other) {
    const size_t count = vocabulary.tokens.size();
    const int32_t found = id_of(file, path, key, count);
    return found >= 0 || !other ? found : id_of(file, path, other, count);
  };
  const auto named = [&](int32_t found, const char* text) {  // converters omit the tokens that every BERT has
    for (size_t i = 0; found < 0 && i < vocabulary.tokens.size(); ++i)
      if (vocabulary.tokens[i].text == text) found = static_cast<int32_t>(i);
    return found;
  };
  vocabulary.model = ModelKind::word_pieces;
  vocabulary.word_start = kSpaceMark;
  vocabulary.longest_word = 100;
  vocabulary.cleans_up = true;
  vocabulary.bos = named(id("tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"), "[CLS]");
  vocabulary.eos = named(id("tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id"), "[SEP]");
  vocabulary.unknown = named(vocabulary.unknown, "[UNK]");
  vocabulary.padding = named(vocabulary.padding, "[PAD]");
  read_ends(file, path, true, true, vocabulary);
  Normalizer rule;
  rule.kind = NormalizerKind::bert;
  rule.lowercase = bool_of(file, path, "tokenizer.ggml.normalizer.lowercase", true);
  rule.accents = bool_of(file, path, "tokenizer.ggml.normalizer.strip_accents", rule.lowercase);
  vocabulary.normalizers.push_back(std::move(rule));
  Division words;
  words.kind = DivisionKind::bert;
  vocabulary.divisions.push_back(std::move(words));
}

}  // namespace

Vocabulary read_vocabulary(const GgufFile& file, const std::string& path) {
  const std::string model = text_of(file, path, kModel, "");
  using Set = void (*)(const GgufFile&, const std::string&, Vocabulary&);
  constexpr std::pair<std::string_view, Set> kKinds[] = {{"llama", set_sentence_pieces},
                                                         {"gpt2", set_byte_pairs},
                                                         {"t5", set_unigram},
                                                         {"unigram", set_unigram},
                                                         {"bert", set_word_pieces}};
  Set set = nullptr;
  for (const auto& [name, kind] : kKinds)
    if (model == name) set = kind;
  if (!set)
    refuse(path, kModel,
           "is '" + model +
               "'; the kinds that can be read are llama (SentencePiece), gpt2 (byte pairs), t5 and unigram"
               " (Unigram) and bert (WordPiece)");
  Vocabulary vocabulary = read_tokens(file, path);
  set(file, path, vocabulary);
  return vocabulary;
}

std::unique_ptr<TextTokenizer> open_tokenizer(std::string_view bytes, const std::string& path) {
  const GgufFile file = read_gguf(bytes, {path, ErrorKind::Weights});
  if (!file.find(kModel))
    throw Error(ErrorKind::Weights, "'" + path + "' has no tokenizer in it: the metadata '" + kModel + "' is missing")
        .note("give the model's tokenizer as a separate file: --tokenizer FILE");
  return make_tokenizer(read_vocabulary(file, path), path);
}

}  // namespace gguf
