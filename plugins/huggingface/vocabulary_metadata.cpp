// Converts a folder's tokenizer to GGUF metadata.
#include <algorithm>
#include <map>
#include <set>

#include "formats/utf8.hpp"
#include "tokenizer_files.hpp"
#include "tokens/byte_pair_training.hpp"

namespace huggingface {

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

constexpr const char* kMarkOfSpace = "\xE2\x96\x81";  // U+2581

std::vector<std::string_view> kept_views(std::vector<std::string> texts, std::vector<std::vector<std::string>>& kept) {
  const std::vector<std::string>& all = kept.emplace_back(std::move(texts));
  return {all.begin(), all.end()};
}

std::string joined(const Merge& merge, std::string_view between) {
  return std::string(merge.left).append(between).append(merge.right);
}

// Sets scores for SentencePiece, which merges the pair with the highest score: the negated index of a token's first
// merge.
void set_scores(Vocabulary& vocabulary) {
  std::map<std::string, float> ranks;
  for (size_t i = 0; i < vocabulary.merges.size(); ++i)
    ranks.emplace(joined(vocabulary.merges[i], ""), -static_cast<float>(i + 1));
  for (Token& token : vocabulary.tokens)
    if (const auto at = ranks.find(token.text); at != ranks.end()) token.score = at->second;
}

// Puts a mark before the text of tokens that begin a word, and removes "##" from the others.
void mark_words(Vocabulary& vocabulary) {
  for (Token& token : vocabulary.tokens) {
    if (token.kind != TokenKind::normal) continue;
    if (token.text.starts_with("##"))
      token.text.erase(0, 2);
    else if (!(token.text.front() == '[' && token.text.back() == ']'))
      token.text.insert(0, kMarkOfSpace);
  }
}

bool has_normalizer(const Vocabulary& vocabulary, NormalizerKind kind) {
  return std::any_of(vocabulary.normalizers.begin(), vocabulary.normalizers.end(),
                     [&](const Normalizer& n) { return n.kind == kind; });
}

bool puts_space_first(const Vocabulary& vocabulary) {
  return has_normalizer(vocabulary, NormalizerKind::prepend) ||
         std::any_of(vocabulary.divisions.begin(), vocabulary.divisions.end(), [](const Division& d) {
           return d.kind == DivisionKind::metaspace && d.prepend != Prepend::never;
         });
}

// Returns whether GGUF cannot express a step. NFC of byte-pair vocabularies is ignored, as by readers of GGUF: few
// texts differ.
bool is_beyond_gguf(const Vocabulary& vocabulary, const Normalizer& n) {
  const bool spaces = n.kind == NormalizerKind::replace && n.text == " " && n.with == kMarkOfSpace;
  switch (vocabulary.model) {
    case ModelKind::word_pieces:
      return n.kind != NormalizerKind::bert;
    case ModelKind::unigram:
      if (n.kind == NormalizerKind::replace && n.expression) return n.text != " {2,}" || n.with != " ";
      return n.kind != NormalizerKind::charsmap && n.kind != NormalizerKind::prepend && !spaces;
    default:
      return vocabulary.byte_alphabet ? n.kind != NormalizerKind::nfc : n.kind != NormalizerKind::prepend && !spaces;
  }
}

void expect_known_steps(const Vocabulary& vocabulary, const std::string& path) {
  for (const Normalizer& n : vocabulary.normalizers)
    if (is_beyond_gguf(vocabulary, n))
      refuse(path, "has a tokenizer that changes texts in a way that GGUF has no name for",
             "the folder itself runs as it is");
}

// Returns whether words do not matter: nothing merges, and no rule adds or removes text.
bool is_undivided(const Vocabulary& vocabulary) {
  return vocabulary.merges.empty() && vocabulary.word_end.empty() &&
         std::all_of(vocabulary.divisions.begin(), vocabulary.divisions.end(),
                     [](const Division& d) { return d.kind == DivisionKind::byte_level && !d.prefix; });
}

bool holds_single_characters(const Vocabulary& vocabulary) {
  if (vocabulary.byte_alphabet || vocabulary.byte_fallback || vocabulary.unknown >= 0 || !is_undivided(vocabulary))
    return false;
  return std::all_of(vocabulary.tokens.begin(), vocabulary.tokens.end(), [](const Token& token) {
    return token.kind != TokenKind::normal || decode_utf8(token.text, 0).length == token.text.size();
  });
}

// Writes tokens of single characters in the byte alphabet, with merges that join the bytes of each character.
void write_as_bytes(Vocabulary& vocabulary) {
  std::set<std::string> joined;
  for (Token& token : vocabulary.tokens) {
    if (token.kind != TokenKind::normal) continue;
    std::string text;
    for (const char byte : token.text) {
      const std::string next = byte_character(static_cast<uint8_t>(byte));
      if (!text.empty() && joined.insert(text + next).second) vocabulary.merges.push_back({text, next});
      text += next;
    }
    token.text = text;
  }
  vocabulary.byte_alphabet = true;
}

// Adds the metadata of this kind of vocabulary and returns GGUF's name of the kind.
std::string add_kind(const FolderTokenizer& tokenizer, Vocabulary& vocabulary, const std::string& path,
                     MetadataMap& to) {
  switch (vocabulary.model) {
    case ModelKind::unigram:
      for (const Normalizer& n : vocabulary.normalizers)
        if (n.kind == NormalizerKind::charsmap) {
          std::vector<int64_t> bytes;
          for (const char c : n.text) bytes.push_back(static_cast<signed char>(c));
          to["tokenizer.ggml.precompiled_charsmap"] = std::move(bytes);
        } else if (n.kind == NormalizerKind::replace && n.expression) {
          to["tokenizer.ggml.remove_extra_whitespaces"] = true;
        }
      to["tokenizer.ggml.add_space_prefix"] = puts_space_first(vocabulary);
      return "t5";
    case ModelKind::word_pieces: {
      for (const Normalizer& n : vocabulary.normalizers)
        if (n.kind == NormalizerKind::bert) to["tokenizer.ggml.normalizer.lowercase"] = n.lowercase;
      mark_words(vocabulary);
      return "bert";
    }
    default:
      break;
  }
  if (const bool characters = holds_single_characters(vocabulary);
      characters || (vocabulary.byte_alphabet && is_undivided(vocabulary))) {
    if (characters) write_as_bytes(vocabulary);
    to["tokenizer.ggml.pre"] = std::string("gpt-2");
    return "gpt2";
  }
  if (vocabulary.byte_alphabet) {
    if (tokenizer.family.empty())
      refuse(path, "has a tokenizer that divides words in a way that GGUF has no name for",
             "the folder itself runs as it is");
    to["tokenizer.ggml.pre"] = tokenizer.family;
    return "gpt2";
  }
  if (!vocabulary.byte_fallback || !vocabulary.word_end.empty())
    refuse(path, "has a tokenizer of byte pairs that GGUF has no kind for", "the folder itself runs as it is");
  set_scores(vocabulary);
  to["tokenizer.ggml.add_space_prefix"] = puts_space_first(vocabulary);
  return "llama";
}

}  // namespace

void add_tokenizer_metadata(const FolderTokenizer& tokenizer, const std::string& path, MetadataMap& to,
                            std::vector<std::vector<std::string>>& kept) {
  Vocabulary vocabulary = tokenizer.vocabulary;
  expect_known_steps(vocabulary, path);
  const std::string kind = add_kind(tokenizer, vocabulary, path, to);
  to["tokenizer.ggml.model"] = kind;
  if (vocabulary.unknown >= 0 && kind != "gpt2" && kind != "bert")
    vocabulary.tokens[static_cast<size_t>(vocabulary.unknown)].kind = TokenKind::unknown;
  std::vector<std::string> texts, merges;
  std::vector<int64_t> kinds;
  std::vector<double> scores;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    Token& token = vocabulary.tokens[i];
    texts.push_back(token.text.empty() ? "[PAD" + std::to_string(i) + "]" : token.text);
    kinds.push_back(static_cast<int64_t>(token.kind));
    scores.push_back(token.score);
  }
  to["tokenizer.ggml.tokens"] = kept_views(std::move(texts), kept);
  to["tokenizer.ggml.token_type"] = std::move(kinds);
  if (kind == "llama" || kind == "t5") to["tokenizer.ggml.scores"] = std::move(scores);
  if (kind == "gpt2") {
    for (size_t i = 0; i < vocabulary.merges.size(); ++i) merges.push_back(joined(vocabulary.merges[i], " "));
    to["tokenizer.ggml.merges"] = kept_views(std::move(merges), kept);
  }
  const bool bert = kind == "bert";
  for (const auto& [key, id] :
       {std::pair("tokenizer.ggml.bos_token_id", vocabulary.bos),
        std::pair(bert ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id", vocabulary.eos),
        std::pair("tokenizer.ggml.unknown_token_id", vocabulary.unknown),
        std::pair("tokenizer.ggml.padding_token_id", vocabulary.padding),
        std::pair("tokenizer.ggml.mask_token_id", vocabulary.mask)})
    if (id >= 0) to[key] = int64_t{id};
  to["tokenizer.ggml.add_bos_token"] = vocabulary.adds_bos;
  to["tokenizer.ggml.add_eos_token"] = vocabulary.adds_eos;
}

}  // namespace huggingface
