// A vocabulary with its rules, as plain data: whatever file it comes from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

// As numbered in GGUF's tokenizer.ggml.token_type.
enum class TokenKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct Token {
  std::string text;  // as in the file; of a byte "<0x0A>"
  TokenKind kind = TokenKind::normal;
  float score = 0;
};

// How a word becomes tokens.
enum class ModelKind : uint8_t {
  byte_pairs,       // by a list of merges
  sentence_pieces,  // neighbours are joined by the score of the token that they make
  unigram,          // the division of the largest sum of scores
  word_pieces       // the longest token first
};

// Two neighbours that become one token; the first in the list is the first to be joined.
struct Merge {
  std::string left, right;
};

// What changes a text before it is divided.
enum class NormalizerKind : uint8_t {
  nfc,
  nfd,
  nfkc,
  nfkd,
  lowercase,
  strip_accents,  // drops characters of the category Mn
  strip,          // white space at the ends: `left`, `right`
  spaces,         // of several spaces one; none at the ends (sentencepiece's remove_extra_whitespaces)
  prepend,        // `text` in front of a text that is not empty
  replace,        // every `text`, or match of the expression `text`, by `with`
  bert,           // `clean`, `chinese`, `accents`, `lowercase`
  charsmap        // `text`: sentencepiece's precompiled_charsmap
};

struct Normalizer {
  NormalizerKind kind = NormalizerKind::nfc;
  std::string text = {};
  std::string with = {};
  bool expression = false;         // of replace: `text` is a regular expression
  bool left = true, right = true;  // of strip
  bool clean = true;               // of bert: controls are dropped, all white space is a space
  bool chinese = true;             // of bert: spaces around each ideograph
  bool accents = true;             // of bert: accents are stripped
  bool lowercase = true;           // of bert
};

// What becomes of the matches of a division.
enum class Behaviour : uint8_t { isolated, removed, with_previous, with_next, contiguous };

// What divides a text into words; the next one divides the words of the one before.
enum class DivisionKind : uint8_t {
  split,             // at matches of `pattern`: `literal`, `behaviour`, `invert`
  byte_level,        // `prefix`: a space in front; `words`: GPT-2's expression. The vocabulary has a byte alphabet
  metaspace,         // `mark` for spaces, in front too by `prepend`; `words`: a word begins at each mark
  bert,              // at white space, which is dropped, and around punctuation
  digits,            // digits apart from other characters; `individual`: each alone
  punctuation,       // by `behaviour`
  whitespace,        // words of \w, and what else is no white space
  whitespace_split,  // at white space, which is dropped
  length             // every `count` characters
};

enum class Prepend : uint8_t { always, first, never };

struct Division {
  DivisionKind kind = DivisionKind::split;
  std::string pattern = {};
  bool literal = false;  // `pattern` is a text, no regular expression
  bool invert = false;   // words are matches, and what is between them is divided off
  Behaviour behaviour = Behaviour::isolated;
  bool prefix = false;
  bool words = true;
  std::string mark = "\xE2\x96\x81";  // U+2581
  Prepend prepend = Prepend::always;
  bool individual = false;
  uint32_t count = 0;
};

// A token that is found in the text before all else.
struct AddedToken {
  int32_t id = -1;
  bool left = false, right = false;  // takes white space on this side with it
  bool single_word = false;          // only where no letter, digit or underscore touches it
  bool normalized = false;           // found in the normalized text, and normalized itself
};

struct Vocabulary {
  std::vector<Token> tokens;
  ModelKind model = ModelKind::byte_pairs;
  std::vector<Merge> merges;            // of byte_pairs
  std::vector<Normalizer> normalizers;  // in this order
  std::vector<Division> divisions;      // in this order; none: the whole text is a word
  // Found first. Those of kind control only on request (HX_ENCODE_SPECIAL), those of any other kind always.
  std::vector<AddedToken> added;

  int32_t bos = -1, eos = -1, unknown = -1, padding = -1, mask = -1;
  // Whether whole texts have the ids in front and behind (HX_ENCODE_BOS, HX_ENCODE_WHOLE): [CLS] and [SEP], for
  // example.
  bool adds_bos = false, adds_eos = false;

  bool byte_alphabet = false;  // byte_pairs: texts of normal tokens write each byte as one printable character
  bool whole_words = false;    // byte_pairs: a word that is a token is taken as it is, without merging
  bool byte_fallback = true;   // what is no token becomes tokens of bytes, where there are such
  bool joins_unknown = false;  // of several unknown characters in a row one unknown token
  std::string word_end;        // byte_pairs: what ends the text of the last token of a word: "</w>"
  bool sums_doubles = false;   // unigram: scores are added in double, as `tokenizers` does, and not in float
  std::string word_start;      // word_pieces: what begins the text of the first token of a word ...
  std::string continuing;      // ... and of the others: "##"
  uint32_t longest_word = 0;   // word_pieces: longer words, in characters, are unknown; 0: no limit

  std::string space_mark;          // decoding: what stands for a space: "▁"
  bool drops_first_space = false;  // decoding: of a text
  bool cleans_up = false;          // decoding word_pieces: no space in front of punctuation

  // What messages call the lists: "the metadata 'tokenizer.ggml.merges'".
  std::string tokens_place = "the vocabulary", merges_place = "the list of merges";

  bool has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < tokens.size(); }
  const Token& operator[](int32_t id) const { return tokens[static_cast<size_t>(id)]; }
};

}  // namespace harmonics::tokens
