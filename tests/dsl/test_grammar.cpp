// Compares the hand-written parser with dsl/hmx/grammar.peg: both accept the same texts.
#include <catch2/catch.hpp>

#include "dsl/load.hpp"
#include "formats/utf8.hpp"
#include "tests/dsl/golden.hpp"
#include "tests/dsl/peg.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

const std::filesystem::path kGrammarSource = HARMONICS_SOURCE_DIR;

enum class Verdict { Accepted, Refused, Unknown };

// Ignores errors beyond the grammar: zeros, numbers out of range, invalid UTF-8.
Verdict parser_verdict(const std::string& text) {
  if (find_invalid_utf8(text) || text.find('\0') != std::string::npos) return Verdict::Unknown;
  try {
    parse_flow(std::make_shared<const SourceText>("text", text));
    return Verdict::Accepted;
  } catch (const SourceErrors& errors) {
    for (const Error& error : errors.errors()) {
      if (error.kind() == ErrorKind::Syntax) return Verdict::Refused;
    }
    return errors.errors().size() < 20 ? Verdict::Accepted : Verdict::Unknown;
  }
}

Verdict grammar_verdict(const peg::Grammar& grammar, std::string_view text) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  return peg::Matcher(grammar, text).accepts() ? Verdict::Accepted : Verdict::Refused;
}

struct Reference {
  std::string text = golden::read(kGrammarSource / "dsl/hmx/grammar.peg");
  peg::Grammar grammar{text};
};

std::string mutated(std::string text, peg::Writer& random) {
  static const std::vector<std::string> tokens = {
      "->", "-(", ")->", "<-(", ")-",    "<-",     "<=",   "<",        ">",       "-",     "(",
      ")",  "{",  "}",   "[",   "]",     ",",      ";",    "|",        ".",       "=",     "*",
      "/",  "//", "#",   "\"",  "\\",    "if",     "else", "for",      "1h",      "5",     "0.5",
      "-1", "e3", "a",   " ",   "until", "epochs", "true", "producer", "layer a", "cycle", "harmonic"};
  for (size_t edits = 1 + random.below(3); edits > 0 && !text.empty(); --edits) {
    const size_t at = random.below(text.size()), length = 1 + random.below(4);
    switch (random.below(5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, random.one_of(tokens));
        break;
      case 2:
        text.insert(at, text.substr(random.below(text.size()), length));
        break;
      case 3:
        std::swap(text[at], text[random.below(text.size())]);
        break;
      case 4:
        text.replace(at, length, random.one_of(tokens));
        break;
    }
  }
  return text;
}

void check_same_verdict(const peg::Grammar& grammar, const std::string& text, size_t& accepted) {
  const Verdict verdict = parser_verdict(text);
  if (verdict == Verdict::Unknown) return;
  const Verdict expected = grammar_verdict(grammar, text);
  accepted += expected == Verdict::Accepted;
  if (verdict == expected) return;
  FAIL("the grammar " << (expected == Verdict::Accepted ? "accepts" : "refuses") << " and the parser does not:\n"
                      << text);
}

}  // namespace

TEST_CASE("peg: accepts good and rejects bad texts") {
  const Reference reference;
  CHECK(grammar_verdict(reference.grammar, "harmonic a { x -> y; }") == Verdict::Accepted);
  CHECK(grammar_verdict(reference.grammar, "harmonic a { x -(f)-> y; # c\n }") == Verdict::Accepted);
  CHECK(grammar_verdict(reference.grammar, "harmonic a { x -(f) -> y; }") == Verdict::Refused);
  CHECK(grammar_verdict(reference.grammar, "harmonica { x -> y; }") == Verdict::Refused);
  CHECK(grammar_verdict(reference.grammar, "harmonic layer { x -> y; }") == Verdict::Refused);
  CHECK(grammar_verdict(reference.grammar, "harmonic a { x -> y; } b") == Verdict::Refused);
  CHECK(grammar_verdict(reference.grammar, "harmonic a { cycle (for 1 h) {} }") == Verdict::Refused);
  CHECK(grammar_verdict(reference.grammar, "") == Verdict::Refused);
}

TEST_CASE("parser and grammar agree on the golden texts") {
  const Reference reference;
  size_t accepted = 0, compared = 0;
  for (const char* folder : {"good", "bad"}) {
    for (const auto& path : golden::files(kGrammarSource / "tests/dsl" / folder, ".hmx")) {
      const std::string name = path.stem().string();
      if (name == "list_too_deep" || name == "blocks_too_deep") continue;  // limits are beyond the grammar
      INFO(path.string());
      check_same_verdict(reference.grammar, golden::read(path), accepted);
      ++compared;
    }
  }
  CHECK(accepted >= 15);
  CHECK(compared > 150);
}

TEST_CASE("parser and grammar agree on random sentences of the grammar") {
  const Reference reference;
  peg::Writer writer(reference.grammar, 1);
  size_t accepted = 0;
  for (int i = 0; i < 3000; ++i) check_same_verdict(reference.grammar, writer.sentence(), accepted);
  CHECK(accepted > 500);
}

TEST_CASE("parser and grammar agree on damaged sentences") {
  const Reference reference;
  peg::Writer writer(reference.grammar, 2);
  std::vector<std::string> texts;
  for (const auto& path : golden::files(kGrammarSource / "tests/dsl/good", ".hmx")) texts.push_back(golden::read(path));
  size_t accepted = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::string text = i % 2 ? writer.sentence() : writer.one_of(texts);
    check_same_verdict(reference.grammar, mutated(text, writer), accepted);
  }
  CHECK(accepted > 200);
  CHECK(accepted < 7800);
}
