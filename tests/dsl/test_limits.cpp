// Limits of the parser: errors per run, nesting, names, bytes.
#include <catch2/catch.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "dsl/load.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string repeated(const std::string& text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

std::vector<Error> errors_of(const std::string& text) {
  try {
    parse_flow(std::make_shared<const SourceText>("text", text));
  } catch (const SourceErrors& errors) {
    return errors.errors();
  }
  return {};
}

std::string nested_blocks(size_t depth) {
  return "harmonic a { cycle {" + repeated(" if b {", depth) + " x -> y; " + repeated("}", depth) + "}}";
}
std::string nested_lists(size_t depth) {
  return "harmonic a { x -(f(" + repeated("[", depth) + repeated("]", depth) + "))-> y; }";
}

}  // namespace

TEST_CASE("limits: at most twenty errors are reported") {
  CHECK(errors_of("harmonic a {" + repeated(" x => y;", 20) + "}").size() == 20);
  const auto errors = errors_of("harmonic a {" + repeated(" x => y;\n", 500) + "}");
  REQUIRE(errors.size() == 20);
  CHECK(errors.back().notes().back() == "note: stopped after 20 errors");
  CHECK(errors_of("harmonic a {" + repeated(" x => y;", 19) + "}").size() == 19);
}

TEST_CASE("errors: in text order, one per position") {
  const auto errors = errors_of("harmonic a {\n x => y;\n layer b 1/0 x;\n layer c {0};\n x -> ;\n y -> z\n}");
  REQUIRE(errors.size() == 5);
  for (size_t i = 1; i < errors.size(); ++i) CHECK(errors[i - 1].span().line < errors[i].span().line);
  CHECK(errors[0].kind() == ErrorKind::Syntax);
  CHECK(errors[1].kind() == ErrorKind::Shape);
}

TEST_CASE("errors: one mistake is reported once") {
  for (const char* text :
       {"harmonic a { layer b 1/2 c {10} {20}; x -> y; }", "harmonic a { cycle (epochs) { x -> y; } }",
        "harmonic a { cycle { if loss = 1 { x -> y; } else { y -> z; } x -> y; } layer b; }",
        "harmonic a { foo bar {10} 1/2 x; layer b; }", "harmonic a { layer b {28 28} 1/2 x; layer c; }",
        "harmonic a { harmless b { c -> d; } layer c; }", "harmonic a { x -> y; }}",
        "harmonic a { x -(f(1)-> y -(g)-> z; y -> z; }"}) {
    INFO(text);
    CHECK(errors_of(text).size() == 1);
  }
}

TEST_CASE("nesting is bounded") {
  CHECK(errors_of(nested_lists(64)).empty());
  CHECK(errors_of(nested_lists(65)).size() == 1);
  CHECK(errors_of(nested_blocks(63)).empty());
  CHECK(errors_of(nested_blocks(64)).size() == 1);
  // Would overflow any stack without a limit.
  CHECK(errors_of(nested_lists(1'000'000)).size() == 1);
  CHECK(errors_of(nested_blocks(1'000'000)).size() == 1);
  CHECK(errors_of("harmonic a {" + repeated("cycle {", 1'000'000)).size() <= 20);
  CHECK(errors_of(repeated("{", 1'000'000)).size() == 1);
}

TEST_CASE("names and values are bounded") {
  const auto errors = errors_of("harmonic a {" + repeated("a->b;", 600'000) + "}");
  REQUIRE(errors.size() == 1);
  CHECK(std::string(errors[0].what()) == "the file holds more than 1000000 names and values");
}

TEST_CASE("long tokens are read in time proportional to their length") {
  CHECK(errors_of("harmonic " + repeated("a", 8 << 20) + " {}").empty());
  CHECK(errors_of("harmonic a { x -(f(" + repeated("9", 8 << 20) + "))-> y; }").size() == 1);
  CHECK(errors_of("harmonic a { x -(f(\"" + repeated("s", 8 << 20) + "\"))-> y; }").empty());
  CHECK(errors_of(repeated("-", 8 << 20)).size() == 1);
  CHECK(errors_of("harmonic a {" + repeated(";", 8 << 20)).size() == 20);
}

TEST_CASE("limits: unread text takes memory in proportion to its length, and of too much of it nothing is kept") {
  const auto read = [](const std::string& unread) {
    try {
      parse_flow(std::make_shared<const SourceText>("text", "harmonic a { x -> y; z = " + unread + "; x -> y; }"));
    } catch (const FlowErrors& errors) {
      return errors.read();
    }
    return Flow{};
  };
  const Flow chain = read(repeated("a-", 4 << 20) + "b");
  CHECK(chain.harmonics.size() == 1);
  CHECK(chain.unread.words.size() == 4);  // z, a, b and the chain with underscores
  std::string words;
  for (int i = 0; i < 150'000; ++i) words += " w" + std::to_string(i);
  const Flow many = read(words);
  CHECK(many.unread.words.size() <= 100'001);
  CHECK(many.harmonics.empty());
}

TEST_CASE("limits: more than 16 MiB are rejected") {
  CHECK_THROWS_WITH(parse_flow(std::make_shared<const SourceText>("big", repeated("#", (16 << 20) + 1))),
                    "'big' holds 16777217 bytes; a flow has at most 16777216");
  const auto path = std::filesystem::temp_directory_path() / "harmonics_big_flow.hmx";
  std::ofstream(path) << repeated("#", (16 << 20) + 1);
  CHECK_THROWS_WITH(parse_flow_file(path.string()),
                    "cannot read '" + path.string() + "': it holds more than the 16777216 bytes allowed");
  std::filesystem::remove(path);
}

TEST_CASE("parser: every truncation of a flow is rejected safely") {
  std::ifstream file(std::string(HARMONICS_SOURCE_DIR) + "/tests/dsl/good/gan.hmx");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  REQUIRE(text.size() > 500);
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    INFO(length);
    CHECK(!errors_of(text.substr(0, length)).empty());
  }
}
