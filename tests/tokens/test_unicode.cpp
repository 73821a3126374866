// Normal forms, lower case and categories of characters.
#include <catch2/catch.hpp>

#include "tokens/charsmap.hpp"
#include "tokens/normalizers.hpp"
#include "tokens/unicode.hpp"

using namespace harmonics;
using namespace harmonics::tokens;

namespace {

std::string of(std::initializer_list<char32_t> characters) {
  std::string text;
  for (const char32_t c : characters) append(text, c);
  return text;
}

Normalizer rule_of(NormalizerKind kind, const std::string& text = "", const std::string& with = "") {
  Normalizer rule;
  rule.kind = kind;
  rule.text = text;
  rule.with = with;
  return rule;
}

}  // namespace

TEST_CASE("unicode: characters compose and decompose") {
  CHECK(normal_form(of({0xE9}), NormalForm::nfd) == of({'e', 0x301}));
  CHECK(normal_form(of({'e', 0x301}), NormalForm::nfc) == of({0xE9}));
  CHECK(normal_form(of({0x1E69}), NormalForm::nfd) == of({'s', 0x323, 0x307}));
  CHECK(normal_form(of({'s', 0x307, 0x323}), NormalForm::nfc) == of({0x1E69}));  // reorders marks
  CHECK(normal_form(of({0xAC01}), NormalForm::nfd) == of({0x1100, 0x1161, 0x11A8}));
  CHECK(normal_form(of({0x1100, 0x1161, 0x11A8}), NormalForm::nfc) == of({0xAC01}));
  CHECK(normal_form(of({0xFB01}), NormalForm::nfkc) == "fi");
  CHECK(normal_form(of({0xFB01}), NormalForm::nfc) == of({0xFB01}));
  CHECK(normal_form(of({0x1D4D1}), NormalForm::nfkd) == "B");
  CHECK(normal_form(of({0x915, 0x93C}), NormalForm::nfc) == of({0x915, 0x93C}));  // excluded from composition
  CHECK(normal_form("plain", NormalForm::nfkc) == "plain");
  CHECK(normal_form("", NormalForm::nfc).empty());
}

TEST_CASE("unicode: small letters and categories") {
  CHECK(lowercase(of({'A', 0xC9, 0x130, 0x3A3, 0x10400})) == of({'a', 0xE9, 'i', 0x307, 0x3C3, 0x10428}));
  CHECK(is_mark(0x301));
  CHECK_FALSE(is_mark('e'));
  CHECK(is_punctuation(0x2014));
  CHECK_FALSE(is_punctuation('$'));
  CHECK(is_punctuation_of_bert('$'));
  CHECK(is_other(0x200B));
  CHECK(is_number(0x0663));
  CHECK(is_of_word('_'));
  CHECK(is_of_word(0x301));
  CHECK_FALSE(is_of_word('-'));
  CHECK(is_white_space(0x3000));
  CHECK_FALSE(is_white_space(0x200B));
}

TEST_CASE("normalizers: each changes a text in its order") {
  using Kind = NormalizerKind;
  const auto changed = [](std::vector<Normalizer> rules, const std::string& text) {
    return Normalization(rules)(text);
  };
  CHECK(changed({}, "As It Is") == "As It Is");
  CHECK(changed({rule_of(Kind::nfd), rule_of(Kind::strip_accents), rule_of(Kind::lowercase)}, of({0xC9, 'A'})) == "ea");
  CHECK(changed({rule_of(Kind::prepend, "_")}, "a") == "_a");
  CHECK(changed({rule_of(Kind::prepend, "_")}, "").empty());
  CHECK(changed({rule_of(Kind::replace, " ", "_")}, " a b") == "_a_b");
  Normalizer spaces = rule_of(Kind::replace, " {2,}", " ");
  spaces.expression = true;
  CHECK(changed({spaces}, "a   b c") == "a b c");
  CHECK(changed({rule_of(Kind::strip)}, "\t a b \n") == "a b");
  Normalizer left = rule_of(Kind::strip);
  left.right = false;
  CHECK(changed({left}, " a ") == "a ");
  CHECK(changed({rule_of(Kind::spaces)}, "  a  b ") == "a b");
  CHECK(changed({rule_of(Kind::bert)}, of({0xC9, 't', '\t', 0, 0x4E00, 0x200B, 'B'})) == "et  " + of({0x4E00}) + " b");
  Normalizer cased = rule_of(Kind::bert);
  cased.lowercase = cased.accents = cased.chinese = false;
  CHECK(changed({cased}, of({0xC9, '\n', 0x4E00})) == of({0xC9, ' ', 0x4E00}));
  CHECK(changed({rule_of(Kind::strip_accents)}, of({'a', 0x301, 0x93F, 0x20DD})) == "a");  // marks of all kinds
}

TEST_CASE("charsmap: tables that lie about their size are refused") {
  const auto refused = [](const std::string& bytes) {
    try {
      Charsmap table(bytes);
    } catch (const Error& e) {
      return e.kind() == ErrorKind::Weights;
    }
    return false;
  };
  CHECK(refused(""));
  CHECK(refused(std::string("\1\0\0", 3)));
  CHECK(refused(std::string("\0\0\0\0", 4)));
  CHECK(refused(std::string("\x08\0\0\0abcd", 8)));
  CHECK(refused(std::string("\xFF\xFF\xFF\xFF", 4)));
  // Any trie gives some text without a crash.
  for (int byte = 0; byte < 256; ++byte) {
    std::string map("\x40\0\0\0", 4);
    map.append(64, static_cast<char>(byte)).push_back('x');
    const Charsmap any(map);
    CHECK(any("abc\xC3\xA9").size() < 100);
  }
}
