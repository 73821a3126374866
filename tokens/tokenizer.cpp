#include "tokens/tokenizer.hpp"

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include "formats/utf8.hpp"
#include "tokens/divisions.hpp"
#include "tokens/model.hpp"
#include "tokens/normalizers.hpp"
#include "tokens/unicode.hpp"

namespace harmonics::tokens {

namespace {

std::unique_ptr<Model> make_model(const Vocabulary& vocabulary, const std::string& path) {
  switch (vocabulary.model) {
    case ModelKind::byte_pairs:
      return make_byte_pairs(vocabulary, path);
    case ModelKind::sentence_pieces:
      return make_sentence_pieces(vocabulary, path);
    case ModelKind::unigram:
      return make_unigram(vocabulary, path);
    case ModelKind::word_pieces:
      return make_word_pieces(vocabulary, path);
  }
  throw Error(ErrorKind::Internal, "a vocabulary without a kind");
}

void expect_vocabulary(const Vocabulary& vocabulary, const std::string& path) {
  const auto expect = [&](int32_t id, const char* which) {
    if (id != -1 && !vocabulary.has(id))
      refuse(path, vocabulary.tokens_place,
             "has " + std::to_string(vocabulary.tokens.size()) + " tokens; the " + which + " is " + std::to_string(id));
  };
  expect(vocabulary.bos, "begin id");
  expect(vocabulary.eos, "end id");
  expect(vocabulary.unknown, "unknown id");
  expect(vocabulary.padding, "padding id");
  expect(vocabulary.mask, "mask id");
  for (const AddedToken& token : vocabulary.added) {
    expect(token.id, "id of an added token");
    if (token.id < 0) refuse(path, vocabulary.tokens_place, "has an added token without an id");
  }
}

// Finds added tokens in a text, the longest at each position.
class AddedTokens {
 public:
  struct Known {
    AddedToken rule;
    std::string text;
    bool control = false;
  };
  void add(Known token) {
    if (!token.text.empty()) by_first_[token.text[0]].push_back(std::move(token));
  }
  void sort() {
    for (auto& [first, tokens] : by_first_)
      std::stable_sort(tokens.begin(), tokens.end(),
                       [](const Known& a, const Known& b) { return a.text.size() > b.text.size(); });
  }
  const Known* at(std::string_view text, size_t place) const {
    const auto found = by_first_.find(text[place]);
    if (found == by_first_.end()) return nullptr;
    for (const Known& token : found->second)
      if (text.compare(place, token.text.size(), token.text) == 0) return &token;
    return nullptr;
  }
  static bool applies(const Known& token, std::string_view text, size_t place, bool control) {
    return (control || !token.control) &&
           (!token.rule.single_word || stands_alone(text, place, place + token.text.size()));
  }
  bool empty() const { return by_first_.empty(); }

 private:
  static bool stands_alone(std::string_view text, size_t begin, size_t end) {
    if (end < text.size() && is_of_word(decode_utf8(text, end).value)) return false;
    if (begin == 0) return true;
    do --begin;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80);
    return !is_of_word(decode_utf8(text, begin).value);
  }

  std::unordered_map<char, std::vector<Known>> by_first_;
};

class VocabularyTokenizer final : public TextTokenizer {
 public:
  VocabularyTokenizer(Vocabulary vocabulary, const std::string& path)
      : vocabulary_(std::move(vocabulary)),
        normalization_(vocabulary_.normalizers),
        division_(vocabulary_.divisions),
        model_(make_model(vocabulary_, path)) {
    for (const Token& token : vocabulary_.tokens) longest_ = std::max(longest_, token.text.size());
    for (const AddedToken& rule : vocabulary_.added) {
      const Token& token = vocabulary_[rule.id];
      const bool control = token.kind == TokenKind::control || token.kind == TokenKind::unknown;
      if (rule.normalized)
        normalized_.add({rule, normalization_(token.text), control});
      else
        plain_.add({rule, token.text, control});
    }
    plain_.sort();
    normalized_.sort();
  }

  TextTokenizerInfo info() const override {
    return {vocabulary_.tokens.size(), vocabulary_.bos,     vocabulary_.eos,
            vocabulary_.unknown,       vocabulary_.padding, longest_};
  }

  std::vector<int32_t> encode(std::string_view text, uint32_t flags) const override {
    std::vector<int32_t> ids;
    const bool begins = (flags & (HX_ENCODE_BOS | HX_ENCODE_WHOLE)) != 0 && vocabulary_.adds_bos;
    const bool ends = (flags & HX_ENCODE_EOS) != 0 || ((flags & HX_ENCODE_WHOLE) != 0 && vocabulary_.adds_eos);
    const bool control = (flags & HX_ENCODE_SPECIAL) != 0;
    if (begins && vocabulary_.bos >= 0) ids.push_back(vocabulary_.bos);
    divide(plain_, text, control, ids, [&](std::string_view part, bool first) {
      const std::string changed = normalization_(part);
      divide(normalized_, changed, control, ids, [&](std::string_view rest, bool front) {
        for (const std::string& word : division_.divide(rest, first && front)) model_->encode(word, ids);
      });
    });
    if (ends && vocabulary_.eos >= 0) ids.push_back(vocabulary_.eos);
    return ids;
  }

  std::string decode(int32_t id, int32_t previous) const override {
    if (!vocabulary_.has(id))
      throw Error(ErrorKind::Usage, "the id " + std::to_string(id) + " is outside the vocabulary, 0 to " +
                                        std::to_string(vocabulary_.tokens.size() - 1));
    const Token& token = vocabulary_[id];
    if (token.kind == TokenKind::control) return previous == HX_DECODE_WRITTEN ? token.text : "";
    if (token.kind == TokenKind::unknown) return "\xEF\xBF\xBD";
    const bool starts = previous == -1 || previous == vocabulary_.bos;
    if (vocabulary_.model == ModelKind::word_pieces) return decoded_piece(id, starts || previous < 0);
    if (starts && vocabulary_.drops_first_marks && token.kind != TokenKind::byte)
      return replaced(token.text, vocabulary_.space_mark, "");
    std::string bytes = model_->bytes_of(id);
    if (ends_word(previous)) bytes.insert(0, 1, ' ');
    if (previous == HX_DECODE_WRITTEN && ends_word(id)) bytes += ' ';
    if (starts && vocabulary_.drops_first_space && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
    return bytes;
  }

 private:
  // Appends the ids of added tokens, and calls `part` with the text between them and whether it begins the input.
  template <typename Part>
  static void divide(const AddedTokens& added, std::string_view text, bool control, std::vector<int32_t>& ids,
                     Part part) {
    size_t start = 0;
    const auto until = [&](size_t end) {
      if (end > start) part(text.substr(start, end - start), start == 0);
    };
    for (size_t at = 0; !added.empty() && at < text.size();) {
      const AddedTokens::Known* token = added.at(text, at);
      if (!token) {
        ++at;
        continue;
      }
      // As in `tokenizers`: the search goes on behind the token's own text, whether or not the token applies, and may
      // find tokens in white space that the token takes.
      size_t begin = at, end = at + token->text.size();
      at = end;
      if (!AddedTokens::applies(*token, text, begin, control)) continue;
      if (token->rule.left) {
        begin = std::max(begin, start);
        while (begin > start && space_before(text, begin, start)) begin = previous_character(text, begin);
      }
      if (token->rule.right)
        while (end < text.size() && is_white_space(decode_utf8(text, end).value)) end += decode_utf8(text, end).length;
      until(begin);
      if (end > begin) ids.push_back(token->rule.id);
      start = std::max(begin, end);
    }
    until(text.size());
  }
  static size_t previous_character(std::string_view text, size_t at) {
    do --at;
    while (at > 0 && (text[at] & 0xC0) == 0x80);
    return at;
  }
  static bool space_before(std::string_view text, size_t at, size_t start) {
    const size_t before = previous_character(text, at);
    return before >= start && is_white_space(decode_utf8(text, before).value);
  }

  bool ends_word(int32_t id) const {
    const std::string& end = vocabulary_.word_end;
    return !end.empty() && vocabulary_.has(id) && vocabulary_[id].kind == TokenKind::normal &&
           std::string_view(vocabulary_[id].text).ends_with(end);
  }
  std::string cleaned(std::string text) const {  // as `tokenizers` does, token by token
    if (!vocabulary_.cleans_up) return text;
    for (const auto& [what, with] :
         {std::pair(" .", "."), std::pair(" ?", "?"), std::pair(" !", "!"), std::pair(" ,", ","), std::pair(" ' ", "'"),
          std::pair(" n't", "n't"), std::pair(" 'm", "'m"), std::pair(" do not", " don't"), std::pair(" 's", "'s"),
          std::pair(" 've", "'ve"), std::pair(" 're", "'re")})
      text = replaced(text, what, with);
    return text;
  }
  // Decodes a WordPiece token. A token that begins a word gets a space before it, except at the start of the text.
  std::string decoded_piece(int32_t id, bool starts) const {
    const std::string& text = vocabulary_[id].text;
    const auto begins = [&](const std::string& with) { return !with.empty() && text.rfind(with, 0) == 0; };
    if (begins(vocabulary_.continuing)) return cleaned(starts ? text : text.substr(vocabulary_.continuing.size()));
    if (!vocabulary_.word_start.empty() && !begins(vocabulary_.word_start)) return text;
    const std::string word = text.substr(vocabulary_.word_start.size());
    return cleaned(starts ? word : " " + word);
  }

  Vocabulary vocabulary_;
  Normalization normalization_;
  WordDivision division_;
  std::unique_ptr<Model> model_;
  AddedTokens plain_, normalized_;
  size_t longest_ = 0;
};

}  // namespace

void refuse(const std::string& path, const std::string& place, const std::string& what) {
  throw Error(ErrorKind::Weights, "'" + path + "': " + place + " " + what);
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary, const std::string& path) {
  ids_.fill(-1);
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.tokens[i].kind != TokenKind::byte) continue;
    const std::string& text = vocabulary.tokens[i].text;
    unsigned byte = 0;
    int end = 0;
    if (std::sscanf(text.c_str(), "<0x%2X>%n", &byte, &end) != 1 || end != 6 || text.size() != 6)
      refuse(path, vocabulary.tokens_place,
             "has a token of a byte, " + std::to_string(i) + ", whose text is not like <0x0A>");
    ids_[byte] = static_cast<int32_t>(i);
    values_[static_cast<int32_t>(i)] = static_cast<char>(byte);
  }
}

bool ByteTokens::add(std::string_view bytes, std::vector<int32_t>& ids) const {
  for (const char c : bytes)
    if (ids_[static_cast<unsigned char>(c)] < 0) return false;
  for (const char c : bytes) ids.push_back(ids_[static_cast<unsigned char>(c)]);
  return true;
}

std::string spaced(std::string_view text, std::string_view mark) {
  if (mark.empty()) return std::string(text);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, mark.size(), mark) == 0) {
      out += ' ';
      at += mark.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::unique_ptr<TextTokenizer> make_tokenizer(Vocabulary vocabulary, const std::string& path) {
  if (vocabulary.tokens.empty()) refuse(path, vocabulary.tokens_place, "has no tokens");
  expect_vocabulary(vocabulary, path);
  try {
    return std::make_unique<VocabularyTokenizer>(std::move(vocabulary), path);
  } catch (const Error& error) {  // from an expression or a character table: add the file's name
    if (error.kind() != ErrorKind::Weights || std::string(error.what()).rfind("'" + path + "'", 0) == 0) throw;
    throw Error(ErrorKind::Weights, "'" + path + "': " + error.what());
  }
}

}  // namespace harmonics::tokens
