// Reads tokenizer.json: the vocabulary and its model.
#include <algorithm>
#include <limits>

#include <harmonics/error.hpp>

#include "formats/utf8.hpp"
#include "tokenizer_files.hpp"

namespace huggingface {

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

constexpr size_t kLongestTokenizer = 256 << 20;
constexpr int64_t kMostTokens = 1 << 24;

Token& token_at(const Node& id, Vocabulary& to) {
  const int64_t number = id.integer();
  if (number < 0 || number >= kMostTokens)
    id.fail("is " + std::to_string(number) + "; an id is 0 to " + std::to_string(kMostTokens - 1));
  // Ids without an entry are unused tokens.
  if (static_cast<size_t>(number) >= to.tokens.size())
    to.tokens.resize(static_cast<size_t>(number) + 1, Token{"", TokenKind::unused, 0});
  return to.tokens[static_cast<size_t>(number)];
}

void read_map(const Node& vocab, Vocabulary& to) {
  const auto entries = vocab.entries();
  // Rejects ids far above the number of entries, so that memory is bounded by the file's size.
  const auto most = static_cast<int64_t>(entries.size()) * 4 + 1024;
  for (const auto& [text, id] : entries) {
    if (id.integer() >= most) id.fail("is " + id.shown() + " in a vocabulary of " + std::to_string(entries.size()));
    Token& token = token_at(id, to);
    if (token.kind != TokenKind::unused) id.fail("is the id of two tokens");
    token = {std::string(text), TokenKind::normal, 0};
  }
}

int32_t id_of_text(const Node& text, const Vocabulary& vocabulary) {
  if (!text.has()) return -1;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (vocabulary.tokens[i].text == text.text()) return static_cast<int32_t>(i);
  text.fail("is " + text.shown() + ", not a token");
}

void read_merges(const Node& merges, Vocabulary& to) {
  if (!merges.is_list()) merges.fail("is not a list");
  for (size_t i = 0; i < merges.size(); ++i) {
    const Node merge = merges[i];
    if (merge.is_list() && merge.size() == 2) {
      to.merges.push_back({merge[size_t{0}].text(), merge[size_t{1}].text()});
      continue;
    }
    const std::string_view text = merge.text();
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size()) merge.fail("is " + merge.shown() + ", not a pair");
    to.merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
}

bool is_byte(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && is_hex(text[3]) && is_hex(text[4]) && text[5] == '>';
}

void mark_bytes(Vocabulary& to) {
  for (Token& token : to.tokens)
    if (to.byte_fallback && is_byte(token.text)) token.kind = TokenKind::byte;
}

void read_byte_pairs(const Node& model, Vocabulary& to) {
  to.model = ModelKind::byte_pairs;
  read_map(model["vocab"], to);
  read_merges(model["merges"], to);
  if (model["dropout"].has() && model["dropout"].number() != 0) model["dropout"].fail("is not implemented");
  if (!model["continuing_subword_prefix"].text("").empty())
    model["continuing_subword_prefix"].fail("is not implemented for byte pairs");
  to.unknown = id_of_text(model["unk_token"], to);
  to.byte_fallback = model["byte_fallback"].truth(false);
  to.joins_unknown = model["fuse_unk"].truth(false);
  to.whole_words = model["ignore_merges"].truth(false);
  to.word_end = model["end_of_word_suffix"].text("");
}

void read_unigram(const Node& model, Vocabulary& to) {
  to.model = ModelKind::unigram;
  const Node vocab = model["vocab"];
  if (!vocab.is_list() || vocab.size() > static_cast<size_t>(kMostTokens)) vocab.fail("is not a list of tokens");
  for (size_t i = 0; i < vocab.size(); ++i)
    to.tokens.push_back({std::string(vocab[i][size_t{0}].text()), TokenKind::normal, vocab[i][size_t{1}].number()});
  if (model["unk_id"].has()) {
    const int64_t unknown = model["unk_id"].integer();
    if (unknown < 0 || static_cast<size_t>(unknown) >= to.tokens.size()) model["unk_id"].fail("is not a token");
    to.unknown = static_cast<int32_t>(unknown);
  }
  to.byte_fallback = model["byte_fallback"].truth(false);
  to.joins_unknown = true;
  to.sums_doubles = true;
}

void read_word_pieces(const Node& model, Vocabulary& to) {
  to.model = ModelKind::word_pieces;
  read_map(model["vocab"], to);
  to.unknown = id_of_text(model["unk_token"], to);
  to.continuing = model["continuing_subword_prefix"].text("##");
  const int64_t longest = model["max_input_chars_per_word"].integer(100);
  if (longest < 1 || longest > std::numeric_limits<int32_t>::max())
    model["max_input_chars_per_word"].fail("is " + std::to_string(longest));
  to.longest_word = static_cast<uint32_t>(longest);
  to.byte_fallback = false;
}

std::string type_of(const Node& model) {
  if (model["type"].has()) return std::string(model["type"].text());
  if (model["merges"].has()) return "BPE";
  return model["vocab"].is_list() ? "Unigram" : "WordPiece";
}

void read_added(const Node& list, Vocabulary& to) {
  const size_t before = to.tokens.size();
  for (size_t i = 0; i < list.size(); ++i) {
    const Node node = list[i];
    if (node["id"].integer() > static_cast<int64_t>(before + list.size()) * 2 + 1024)
      node["id"].fail("is " + node["id"].shown() + " in a vocabulary of " + std::to_string(before));
    Token& token = token_at(node["id"], to);
    const std::string_view text = node["content"].text();
    if (text.empty()) node["content"].fail("is empty");
    token.of_model = token.text == text && token.kind == TokenKind::normal;
    token.text = text;
    token.kind = node["special"].truth(false) ? TokenKind::control : TokenKind::user_defined;
    AddedToken added;
    added.id = static_cast<int32_t>(node["id"].integer());
    added.left = node["lstrip"].truth(false);
    added.right = node["rstrip"].truth(false);
    added.single_word = node["single_word"].truth(false);
    added.normalized = node["normalized"].truth(false);
    to.added.push_back(added);
  }
}

}  // namespace

Vocabulary read_tokenizer(std::string_view text, const std::string& path) {
  const Node root = Node::parse(text, path, kLongestTokenizer);
  const Node model = root["model"];
  if (!model.is_object()) model.fail("is not an object");
  Vocabulary vocabulary;
  vocabulary.tokens_place = ".model.vocab";
  vocabulary.merges_place = ".model.merges";
  const std::string type = type_of(model);
  if (type == "BPE")
    read_byte_pairs(model, vocabulary);
  else if (type == "Unigram")
    read_unigram(model, vocabulary);
  else if (type == "WordPiece")
    read_word_pieces(model, vocabulary);
  else
    model["type"].fail("is " + printable(type, 40) + "; the kinds that can be read are BPE, Unigram and WordPiece");
  mark_bytes(vocabulary);
  read_added(root["added_tokens"], vocabulary);
  if (vocabulary.tokens.empty()) model["vocab"].fail("has no tokens");
  read_rules(root, vocabulary);
  return vocabulary;
}

}  // namespace huggingface
