// A vocabulary with its rules, as plain data independent of the file format.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::tokens {

// Numbered as in GGUF's tokenizer.ggml.token_type.
enum class TokenKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct Token {
  std::string text;  // as in the file; "<0x0A>" for a byte
  TokenKind kind = TokenKind::normal;
  double score = 0;
  bool of_model = false;  // user_defined: the model has it too, so it may also be a part of a word
};

// The algorithm that encodes a word as tokens.
enum class ModelKind : uint8_t {
  byte_pairs,       // merges adjacent symbols in the order of a list
  sentence_pieces,  // merges adjacent symbols, highest token score first
  unigram,          // maximizes the sum of scores
  word_pieces       // takes the longest token first
};

// Two adjacent symbols that merge.
struct Merge {
  std::string_view left, right;
};

// Merges in order of priority. Their texts lie in one string: a vocabulary has about 150,000.
class MergeList {
 public:
  MergeList() = default;
  MergeList(std::initializer_list<Merge> merges) {
    for (const Merge& merge : merges) push_back(merge);
  }
  size_t size() const { return ends_.size() / 2; }
  bool empty() const { return ends_.empty(); }
  Merge operator[](size_t i) const { return {text(2 * i), text(2 * i + 1)}; }
  void reserve(size_t merges, size_t bytes = 0) {
    ends_.reserve(2 * merges);
    texts_.reserve(bytes);
  }
  void push_back(const Merge& merge) {  // copies the texts
    texts_ += merge.left;
    ends_.push_back(texts_.size());
    texts_ += merge.right;
    ends_.push_back(texts_.size());
  }

 private:
  std::string_view text(size_t part) const {
    const size_t begin = part ? ends_[part - 1] : 0;
    return std::string_view(texts_).substr(begin, ends_[part] - begin);
  }

  std::string texts_;
  std::vector<size_t> ends_;  // of left and right parts, alternating
};

// A change of the text before it is divided.
enum class NormalizerKind : uint8_t {
  nfc,
  nfd,
  nfkc,
  nfkd,
  lowercase,
  strip_accents,  // removes marks
  strip,          // removes white space at the ends: `left`, `right`
  spaces,         // collapses spaces and trims the ends (sentencepiece's remove_extra_whitespaces)
  prepend,        // puts `text` before a non-empty text
  replace,        // replaces every `text`, or match of the expression `text`, by `with`
  bert,           // `clean`, `chinese`, `accents`, `lowercase`
  charsmap        // `text`: sentencepiece's precompiled_charsmap
};

struct Normalizer {
  NormalizerKind kind = NormalizerKind::nfc;
  std::string text = {};
  std::string with = {};
  bool expression = false;         // replace: `text` is a regular expression
  bool left = true, right = true;  // strip: which ends
  bool clean = true;               // bert: drops control characters, turns white space into spaces
  bool chinese = true;             // bert: puts spaces around each ideograph
  bool accents = true;             // bert: strips accents
  bool lowercase = true;           // bert: converts to lower case
};

// The treatment of a division's matches.
enum class Behaviour : uint8_t { isolated, removed, with_previous, with_next, contiguous };

// A rule that divides a text into words. Each rule divides the words of the previous one.
enum class DivisionKind : uint8_t {
  split,             // at matches of `pattern`: `literal`, `behaviour`, `invert`
  byte_level,        // `prefix`: adds a leading space; `words`: GPT-2's expression. Requires a byte alphabet
  metaspace,         // replaces spaces by `mark`; `prepend`: adds a leading mark; `words`: a word begins at each mark
  bert,              // at white space, which is dropped, and around punctuation
  digits,            // separates digits from other characters; `individual`: each from the next
  punctuation,       // at punctuation, by `behaviour`
  whitespace,        // runs of \w, and runs of other characters except white space
  whitespace_split,  // at white space, which is dropped
  length             // every `count` characters
};

enum class Prepend : uint8_t { always, first, never };

struct Division {
  DivisionKind kind = DivisionKind::split;
  std::string pattern = {};
  bool literal = false;  // `pattern` is plain text, not an expression
  bool invert = false;   // swaps matches and the text between them
  Behaviour behaviour = Behaviour::isolated;
  bool prefix = false;
  bool words = true;
  std::string mark = "\xE2\x96\x81";  // U+2581
  Prepend prepend = Prepend::always;
  bool individual = false;
  uint32_t count = 0;
};

// A token that is found in the text before the text is divided.
struct AddedToken {
  int32_t id = -1;
  bool left = false, right = false;  // also takes the white space on this side
  bool single_word = false;          // only if no letter, digit or underscore is adjacent
  bool normalized = false;           // searched in the normalized text, in normalized form
};

struct Vocabulary {
  std::vector<Token> tokens;
  ModelKind model = ModelKind::byte_pairs;
  MergeList merges;                     // for byte_pairs
  std::vector<Normalizer> normalizers;  // in order of application
  std::vector<Division> divisions;      // in order of application; none: the text is one word
  // Control tokens are found only on request (HX_ENCODE_SPECIAL), all others always.
  std::vector<AddedToken> added;

  int32_t bos = -1, eos = -1, unknown = -1, padding = -1, mask = -1;
  // Whether HX_ENCODE_WHOLE adds the begin and end ids, such as [CLS] and [SEP]. HX_ENCODE_BOS also requires adds_bos.
  bool adds_bos = false, adds_eos = false;

  bool byte_alphabet = false;  // byte_pairs: normal tokens write each byte as one printable character
  bool whole_words = false;    // byte_pairs: a word that is a token is not divided by merges
  bool byte_fallback = true;   // unknown text becomes byte tokens, if they exist
  bool joins_unknown = false;  // a run of unknown characters becomes one unknown token
  std::string word_end;        // byte_pairs: suffix of a word's last token: "</w>"
  bool sums_doubles = false;   // unigram: adds scores in double, like `tokenizers`, not in float
  std::string word_start;      // word_pieces: prefix of a word's first token
  std::string continuing;      // word_pieces: prefix of a word's other tokens: "##"
  uint32_t longest_word = 0;   // word_pieces: words of more characters are unknown; 0: no limit

  std::string space_mark;          // decoding: represents a space: "▁"
  bool drops_first_space = false;  // decoding: removes the first space of a text
  bool drops_first_marks = false;  // decoding: removes all space marks of the first token
  bool cleans_up = false;          // decoding word_pieces: no space before punctuation

  // The lists' names in messages: "the metadata 'tokenizer.ggml.merges'".
  std::string tokens_place = "the vocabulary", merges_place = "the list of merges";

  bool has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < tokens.size(); }
  const Token& operator[](int32_t id) const { return tokens[static_cast<size_t>(id)]; }
};

}  // namespace harmonics::tokens
