// Vocabularies of each kind, divisions, added tokens, and errors.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <utility>

#include "tests/tokens/vocabularies.hpp"
#include "tokens/divisions.hpp"
#include "tokens/families.hpp"

using namespace harmonics;
using namespace harmonics::tokens;
using namespace harmonics::tokens::testing;

namespace {

using Words = std::vector<std::string>;

Words divided(std::vector<Division> steps, const std::string& text, bool first = true) {
  return WordDivision(steps).divide(text, first);
}

Division division_of(DivisionKind kind, const std::string& pattern = "") {
  Division division;
  division.kind = kind;
  division.pattern = pattern;
  return division;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("divisions: matches are isolated, removed, or go with a neighbour") {
  Division split = division_of(DivisionKind::split, "-+");
  const std::string text = "a--b-c-";
  CHECK(divided({split}, text) == Words{"a", "--", "b", "-", "c", "-"});
  split.behaviour = Behaviour::removed;
  CHECK(divided({split}, text) == Words{"a", "b", "c"});
  split.invert = true;
  CHECK(divided({split}, text) == Words{"--", "-", "-"});
  split.invert = false;
  split.behaviour = Behaviour::with_previous;
  CHECK(divided({split}, text) == Words{"a--", "b-", "c-"});
  split.behaviour = Behaviour::with_next;
  CHECK(divided({split}, text) == Words{"a", "--b", "-c", "-"});
  split.literal = true;
  split.pattern = "-";
  split.behaviour = Behaviour::contiguous;
  CHECK(divided({split}, text) == Words{"a", "--", "b", "-", "c", "-"});
  CHECK(divided({division_of(DivisionKind::split, "x*")}, "ab") == Words{"a", "b"});  // empty matches divide
  CHECK(divided({}, text) == Words{text});
  CHECK(divided({split}, "").empty());
}

TEST_CASE("divisions: the named ones") {
  CHECK(divided({division_of(DivisionKind::bert)}, "a,b  c") == Words{"a", ",", "b", "c"});
  CHECK(divided({division_of(DivisionKind::digits)}, "a12b") == Words{"a", "12", "b"});
  Division each = division_of(DivisionKind::digits);
  each.individual = true;
  CHECK(divided({each}, "a12b") == Words{"a", "1", "2", "b"});
  CHECK(divided({division_of(DivisionKind::whitespace)}, "Hey, you_2!?") == Words{"Hey", ",", "you_2", "!?"});
  CHECK(divided({division_of(DivisionKind::whitespace_split)}, " a,b c\n") == Words{"a,b", "c"});
  Division byte_level = division_of(DivisionKind::byte_level);
  byte_level.prefix = true;
  CHECK(divided({byte_level}, "it's 12") == Words{" it", "'s", " 12"});
  const std::string mark = kMark;
  Division metaspace = division_of(DivisionKind::metaspace);
  CHECK(divided({metaspace}, "a b") == Words{mark + "a", mark + "b"});
  metaspace.prepend = Prepend::first;
  CHECK(divided({metaspace}, "a b", false) == Words{"a", mark + "b"});
  CHECK(divided({division_of(DivisionKind::whitespace_split), metaspace}, " a b") == Words{"a", "b"});
  metaspace.words = false;
  CHECK(divided({metaspace}, "a b", true) == Words{mark + "a" + mark + "b"});
  Division length = division_of(DivisionKind::length);
  length.count = 2;
  CHECK(divided({length}, "a\xC3\xA9z") == Words{"a\xC3\xA9", "z"});
}

TEST_CASE("tokens: Unigram takes the division of the largest sum") {
  const std::string mark = kMark;
  Vocabulary vocabulary = vocabulary_of(
      ModelKind::unigram, {{"<unk>", 0}, {"a", -3}, {"b", -3}, {"ab", -5}, {"abc", -9}, {"c", -3.5}, {"<0xC3>", 0}});
  vocabulary.tokens[0].kind = TokenKind::unknown;
  vocabulary.tokens[6].kind = TokenKind::byte;
  vocabulary.unknown = 0;
  CHECK(encoded(vocabulary, "ab") == Ids{3});      // -5 is above -6
  CHECK(encoded(vocabulary, "abc") == Ids{3, 5});  // -8.5 is above -9
  CHECK(encoded(vocabulary, "axxb") == Ids{1, 0, 0, 2});
  vocabulary.joins_unknown = true;
  CHECK(encoded(vocabulary, "axxb") == Ids{1, 0, 2});
  CHECK(encoded(vocabulary, "\xC3\xA9") == Ids{0});  // one of its bytes has no token
  vocabulary.tokens.push_back({"<0xA9>", TokenKind::byte, 0});
  CHECK(encoded(vocabulary,
                "\xC3\xA9"
                "b") == Ids{6, 7, 2});
  vocabulary.unknown = -1;
  CHECK(refusal_of([&] { encoded(vocabulary, "a"); }).find("no token for unknown characters") != std::string::npos);
}

TEST_CASE("tokens: WordPiece takes the longest token first") {
  Vocabulary vocabulary = words_of({"un", "##aff", "##able", "a", "##a"});
  CHECK(encoded(vocabulary, "unaffable") == Ids{1, 2, 3});
  CHECK(encoded(vocabulary, "unb") == Ids{0});  // a word that is not fully covered is unknown
  CHECK(encoded(vocabulary, "aa") == Ids{4, 5});
  vocabulary.longest_word = 1;
  CHECK(encoded(vocabulary, "aa") == Ids{0});
  const auto tokenizer = make_tokenizer(words_of({"un", "##aff", "a"}), "test");
  CHECK(decoded(*tokenizer, {1, 2, 3, 1}) == "unaff a un");
}

TEST_CASE("tokens: WordPiece as GGUF has it, with marks in front of words") {
  const std::string mark = kMark;
  Vocabulary vocabulary = words_of({mark + "un", "aff", mark + "a", mark + "."});
  vocabulary.continuing.clear();
  vocabulary.word_start = mark;
  vocabulary.cleans_up = true;
  CHECK(encoded(vocabulary, "unaff") == Ids{1, 2});
  CHECK(encoded(vocabulary, "aff") == Ids{0});
  const auto tokenizer = make_tokenizer(vocabulary, "test");
  CHECK(decoded(*tokenizer, {1, 2, 3, 4}) == "unaff a.");
}

TEST_CASE("tokens: byte pairs of characters, with bytes and unknown ones for the rest") {
  Vocabulary vocabulary = vocabulary_of(
      ModelKind::byte_pairs, {{"<unk>", 0}, {"a", 0}, {"b", 0}, {"ab", 0}, {"<0xC3>", 0}, {"<0xA9>", 0}, {"b</w>", 0}});
  vocabulary.tokens[4].kind = vocabulary.tokens[5].kind = TokenKind::byte;
  vocabulary.tokens[0].kind = TokenKind::unknown;
  vocabulary.unknown = 0;
  vocabulary.merges = {{"a", "b"}};
  CHECK(encoded(vocabulary, "abba") == Ids{3, 2, 1});
  CHECK(encoded(vocabulary,
                "\xC3\xA9"
                "a") == Ids{4, 5, 1});
  CHECK(encoded(vocabulary, "xxa") == Ids{0, 0, 1});
  vocabulary.joins_unknown = true;
  CHECK(encoded(vocabulary, "xxa") == Ids{0, 1});
  vocabulary.word_end = "</w>";
  CHECK(encoded(vocabulary, "ab") == Ids{1, 6});
  CHECK(decoded(*make_tokenizer(vocabulary, "test"), {1, 6, 1}) == "ab a");
  vocabulary.merges = {{"", "b"}};
  CHECK(refusal_of([&] { encoded(vocabulary, "a"); }).find("the list of merges has the item 0") != std::string::npos);
}

namespace {

// Merges the pair that is first in the list, of equal ones the leftmost, until no pair is in the list.
Ids merged_plainly(const Vocabulary& vocabulary, const std::string& word) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < vocabulary.merges.size(); ++i)
    ranks.try_emplace({std::string(vocabulary.merges[i].left), std::string(vocabulary.merges[i].right)}, i);
  Words parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best = 0, rank = ranks.size() + vocabulary.merges.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto at = ranks.find({parts[i], parts[i + 1]}); at != ranks.end() && at->second < rank)
        best = i, rank = at->second;
    if (rank >= vocabulary.merges.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) {
    size_t id = 0;
    while (id < vocabulary.tokens.size() && vocabulary.tokens[id].text != part) ++id;
    ids.push_back(id < vocabulary.tokens.size() ? static_cast<int32_t>(id) : vocabulary.unknown);
  }
  return ids;
}

}  // namespace

TEST_CASE("tokens: byte pairs whose tokens are in another order than their merges, doubled or missing") {
  Vocabulary vocabulary = vocabulary_of(ModelKind::byte_pairs, {{"<unk>", 0}, {"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}});
  vocabulary.tokens[0].kind = TokenKind::unknown;
  vocabulary.unknown = 0;
  uint32_t state = 1;
  const auto pick = [&](size_t below) { return ((state = state * 1664525 + 1013904223) >> 8) % below; };
  Words parts = {"a", "b", "c", "d"};
  for (size_t i = 0; i < 150; ++i) {  // several times as many as are looked up ahead
    const std::string left = parts[pick(parts.size())], right = parts[pick(parts.size())];
    if (left.size() + right.size() > 12) continue;
    vocabulary.merges.push_back({left, right});
    if (i % 9 == 0) vocabulary.merges.push_back({left, right});
    parts.push_back(left + right);
    if (i % 11 == 5) continue;  // a symbol of merges only
    Token token;
    token.text = parts.back();
    vocabulary.tokens.push_back(token);
    if (i % 7 == 3) std::swap(vocabulary.tokens.back(), vocabulary.tokens[5 + pick(vocabulary.tokens.size() - 5)]);
    if (i % 13 == 6) vocabulary.tokens.push_back(token);
  }
  REQUIRE(vocabulary.merges.size() > 64);
  const auto tokenizer = make_tokenizer(vocabulary, "test");
  for (size_t i = 0; i < 200; ++i) {
    std::string word;
    for (size_t n = 1 + pick(20); n > 0; --n) word += static_cast<char>('a' + pick(4));
    CAPTURE(word);
    CHECK(tokenizer->encode(word, 0) == merged_plainly(vocabulary, word));
  }
  MergeList bad = vocabulary.merges;
  for (size_t i = 0; i < 40; ++i) bad.push_back({"a", i == 20 ? "" : "b"});
  vocabulary.merges = bad;
  CHECK(refusal_of([&] {
          encoded(vocabulary, "a");
        }).find("the list of merges has the item " + std::to_string(bad.size() - 20) + ", 'a '") != std::string::npos);
}

TEST_CASE("tokens: added tokens are found first, with the white space that they take") {
  Vocabulary vocabulary = words_of({"a", "b", "<x>", "<y>", "ab"});
  vocabulary.tokens[3].kind = TokenKind::control;
  vocabulary.tokens[4].kind = TokenKind::user_defined;
  AddedToken special, plain;
  special.id = 3;
  plain.id = 4;
  vocabulary.added = {special, plain};
  vocabulary.divisions = {division_of(DivisionKind::split, " ")};
  CHECK(encoded(vocabulary, "a<y>b") == Ids{1, 4, 2});
  CHECK(encoded(vocabulary, "a<x>b", HX_ENCODE_SPECIAL) == Ids{1, 3, 2});
  CHECK(encoded(vocabulary, "a<x>b") == Ids{0});  // treated as ordinary text
  CHECK(encoded(vocabulary, "a <y> b") == Ids{1, 0, 4, 0, 2});
  vocabulary.added[1].left = vocabulary.added[1].right = true;
  CHECK(encoded(vocabulary, "a <y> b") == Ids{1, 4, 2});
  vocabulary.added[1] = {};
  vocabulary.added[1].id = 5;
  vocabulary.added[1].single_word = true;
  vocabulary.tokens[5].kind = TokenKind::user_defined;
  CHECK(encoded(vocabulary, "aab") == Ids{0});
  CHECK(encoded(vocabulary, "ab") == Ids{5});
  Normalizer lower;
  lower.kind = NormalizerKind::lowercase;
  vocabulary.normalizers = {lower};
  vocabulary.added[1].single_word = false;
  CHECK(encoded(vocabulary, "ABb") == Ids{0});  // not searched in the normalized text
  vocabulary.added[1].normalized = true;
  CHECK(encoded(vocabulary, "ABb") == Ids{5, 2});
}

TEST_CASE("tokens: the search for added tokens goes on behind each match, as in `tokenizers`") {
  Vocabulary vocabulary = words_of({"a", "b", "  ", "bb", "b!"});
  vocabulary.divisions = {division_of(DivisionKind::whitespace_split)};
  for (int32_t id = 3; id <= 5; ++id) {
    vocabulary.tokens[static_cast<size_t>(id)].kind = TokenKind::user_defined;
    AddedToken added;
    added.id = id;
    vocabulary.added.push_back(added);
  }
  vocabulary.added[0].right = true;
  CHECK(encoded(vocabulary, "a     b") == Ids{1, 3, 3, 2});  // one in the white space that the other one took
  vocabulary.added[0].left = true;
  CHECK(encoded(vocabulary, "a    b") == Ids{1, 3, 2});  // of the second one nothing is left
  vocabulary.added[1].single_word = true;
  CHECK(encoded(vocabulary, "bb b!") == Ids{4, 5});
  CHECK(encoded(vocabulary, "bbb!") == Ids{0, 5});  // "bb" is not a word, and the search goes on behind it
}

TEST_CASE("tokens: user-defined tokens of the model are also parts of words") {
  for (const ModelKind model : {ModelKind::byte_pairs, ModelKind::unigram, ModelKind::word_pieces}) {
    Vocabulary vocabulary = vocabulary_of(model, {{"?", -9}, {"a", -3}, {"b", -3}, {"ab", -1}, {"c", -3}});
    vocabulary.merges = {{"a", "b"}};
    vocabulary.unknown = 0;
    vocabulary.sums_doubles = true;
    AddedToken added;
    added.id = 3;
    added.single_word = true;
    vocabulary.added = {added};
    vocabulary.tokens[3].kind = TokenKind::user_defined;
    CHECK(encoded(vocabulary, "abc") == (model == ModelKind::byte_pairs ? Ids{0, 4} : Ids{1, 2, 4}));
    vocabulary.tokens[3].of_model = true;
    CHECK(encoded(vocabulary, "abc") == Ids{3, 4});
  }
}

TEST_CASE("tokens: pairs with a suffix at ends of words") {
  Vocabulary vocabulary = vocabulary_of(ModelKind::byte_pairs, {{"<unk>", 0}, {"a", 0}, {"b</w>", 0}, {"b", 0}});
  vocabulary.word_end = "</w>";
  vocabulary.unknown = 0;
  const auto tokenizer = make_tokenizer(vocabulary, "test");
  CHECK(decoded(*tokenizer, {1, 2, 3, 2}) == "ab bb");  // no space at the end
  vocabulary.byte_alphabet = true;
  CHECK(encoded(vocabulary, "ba") == Ids{3, 0});  // no token for "a</w>"
}

TEST_CASE("tokens: text of first tokens with marks, and before punctuation") {
  const std::string mark = kMark;
  Vocabulary vocabulary = vocabulary_of(ModelKind::unigram, {{"<unk>", 0}, {mark + mark, -1}, {mark + "a", -1}});
  vocabulary.unknown = 0;
  vocabulary.space_mark = mark;
  vocabulary.drops_first_marks = true;
  CHECK(decoded(*make_tokenizer(vocabulary, "test"), {1, 1, 2}) == "   a");
  Vocabulary words = words_of({"a", "...", "n't", "'s"});
  words.cleans_up = true;
  CHECK(decoded(*make_tokenizer(words, "test"), {1, 2, 1, 3, 4}) == "a... an't's");
}

TEST_CASE("divisions: expressions have the meaning of Oniguruma") {
  const auto removed = [](const std::string& pattern, const std::string& text) {
    Division split = division_of(DivisionKind::split, pattern);
    split.behaviour = Behaviour::removed;
    return divided({split}, text);
  };
  const std::string vowel_separator = "\xE1\xA0\x8E", comma = "\xE3\x80\x81", nukta = "\xE0\xA4\xBC",
                    han = "\xE4\xBD\xA0";
  CHECK(removed("\\s", "a" + vowel_separator + "b c") == Words{"a" + vowel_separator + "b", "c"});
  CHECK(removed("[^\\S\n]+", "a \nb") == Words{"a", "\nb"});
  CHECK(removed("\\w+", "a" + nukta + "_-") == Words{"-"});
  CHECK(removed("\\p{Han}+", "a" + han + comma) == Words{"a", comma});
  CHECK(removed("\\b", "ab?c") == Words{"ab", "?", "c"});
  CHECK(removed("(?=[0-9])", "a12") == Words{"a", "1", "2"});
  CHECK(removed("^a", "a\na") == Words{"\n"});  // also at the beginning of a line
  CHECK(removed("[^(\\s|[.,])]+", "a.b (c,") == Words{".", " (", ","});
  CHECK(removed("[\\p{L}&&[^\\p{Han}b]]+", "a" + han + "b-c") == Words{han + "b-"});
  CHECK(refusal_of([&] { removed("[a&&b]", "a"); }).find("sets inside sets") != std::string::npos);
}

TEST_CASE("tokens: begin and end come where the vocabulary says so") {
  Vocabulary vocabulary = words_of({"a", "[CLS]", "[SEP]"});
  vocabulary.tokens[2].kind = vocabulary.tokens[3].kind = TokenKind::control;
  vocabulary.bos = 2;
  vocabulary.eos = 3;
  CHECK(encoded(vocabulary, "a", HX_ENCODE_WHOLE) == Ids{1});
  CHECK(encoded(vocabulary, "a", HX_ENCODE_EOS) == Ids{1, 3});
  vocabulary.adds_bos = vocabulary.adds_eos = true;
  CHECK(encoded(vocabulary, "a", HX_ENCODE_WHOLE) == Ids{2, 1, 3});
  CHECK(encoded(vocabulary, "a", HX_ENCODE_BOS) == Ids{2, 1});
  CHECK(encoded(vocabulary, "a") == Ids{1});
  CHECK(decoded(*make_tokenizer(vocabulary, "test"), {2, 1, 3}) == "a");
}

TEST_CASE("tokens: vocabularies that contradict themselves are refused with the file and the place") {
  Vocabulary vocabulary = words_of({"a"});
  vocabulary.bos = 7;
  CHECK(refusal_of([&] { make_tokenizer(vocabulary, "v.json"); }) ==
        "'v.json': the vocabulary has 2 tokens; the begin id is 7");
  vocabulary.bos = -1;
  vocabulary.divisions = {division_of(DivisionKind::split, "(")};
  CHECK(refusal_of([&] { make_tokenizer(vocabulary, "v.json"); }).rfind("'v.json': the regular expression (", 0) == 0);
  vocabulary.divisions.clear();
  vocabulary.added.push_back({});
  CHECK(refusal_of([&] { make_tokenizer(vocabulary, "v.json"); }).find("an added token without an id") !=
        std::string::npos);
  Vocabulary bytes = vocabulary_of(ModelKind::sentence_pieces, {{"<0x1G>", 0}});
  bytes.tokens[0].kind = TokenKind::byte;
  CHECK(refusal_of([&] { make_tokenizer(bytes, "v.json"); }).find("whose text is not like <0x0A>") !=
        std::string::npos);
  CHECK(refusal_of([&] { make_tokenizer({}, "v.json"); }) == "'v.json': the vocabulary has no tokens");
  CHECK_FALSE(set_family(vocabulary, "martian"));
  CHECK(set_family(vocabulary, "qwen2"));
  CHECK(vocabulary.byte_alphabet);
  CHECK(family_names().rfind("gpt-2, llama3", 0) == 0);
}
