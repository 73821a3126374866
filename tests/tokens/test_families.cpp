// Words of byte-pair families, compared with the package `tokenizers` (tests/parity/make_families.py).
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "tokens/divisions.hpp"
#include "tokens/families.hpp"

using namespace harmonics::tokens;

namespace {

int64_t characters_of(const std::string& word) {
  return std::count_if(word.begin(), word.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
}

}  // namespace

TEST_CASE("families: words are those of the pre-tokenizers of published models") {
  std::ifstream in(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/families.json");
  const std::string golden_text{std::istreambuf_iterator<char>(in), {}};
  const boost::json::value golden = boost::json::parse(golden_text);
  const boost::json::array& texts = golden.at("texts").as_array();
  REQUIRE(texts.size() > 160);
  size_t families = 0;
  for (const auto& [key, words] : golden.as_object()) {
    const std::string name(key.data(), key.size());
    if (name == "texts") continue;
    ++families;
    Vocabulary vocabulary;
    REQUIRE(set_family(vocabulary, name));
    const WordDivision division(vocabulary.divisions);
    REQUIRE(words.as_array().size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text(texts[i].as_string());
      INFO(name << ", text " << i << ": " << texts[i]);
      std::vector<int64_t> found;
      std::string joined;
      for (const std::string& word : division.divide(text, true)) {
        found.push_back(characters_of(word));
        joined += word;
      }
      CHECK(joined == text);
      CHECK(found == boost::json::value_to<std::vector<int64_t>>(words.as_array()[i]));
    }
  }
  CHECK(families == 12);
}

TEST_CASE("families: other names of a family divide as it does") {
  const std::vector<std::pair<const char*, const char*>> names = {
      {"mellum", "gpt-2"},   {"falcon-h1", "llama3"}, {"grok-2", "qwen2"},         {"hunyuan-dense", "deepseek-v3"},
      {"llama4", "gpt-4o"},  {"poro-chat", "bloom"},  {"a.x-4.0", "gpt-2"},        {"kormo", "qwen2"},
      {"mellum2", "smollm"}, {"glm5", "glm4"},        {"joyai-llm", "deepseek-v3"}};
  for (const auto& [name, other] : names) {
    INFO(name);
    Vocabulary a, b;
    REQUIRE(set_family(a, name));
    REQUIRE(set_family(b, other));
    REQUIRE(a.divisions.size() == b.divisions.size());
    for (size_t i = 0; i < a.divisions.size(); ++i) CHECK(a.divisions[i].pattern == b.divisions[i].pattern);
    CHECK(a.whole_words == b.whole_words);
    CHECK(a.adds_bos == b.adds_bos);
  }
  Vocabulary glm4, tekken;
  REQUIRE(set_family(glm4, "glm4"));
  CHECK(glm4.whole_words);
  CHECK_FALSE(glm4.adds_bos);
  REQUIRE(set_family(tekken, "tekken"));
  CHECK(tekken.whole_words);
  CHECK(tekken.adds_bos);
}

TEST_CASE("families: what tells a family from its relatives") {
  const auto words = [](const char* name, const char* text) {
    Vocabulary vocabulary;
    REQUIRE(set_family(vocabulary, name));
    return WordDivision(vocabulary.divisions).divide(text, true);
  };
  using Words = std::vector<std::string>;
  CHECK(words("qwen2", "a'sb") == Words{"a", "'s", "b"});
  CHECK(words("ufakzeka", "a'sb") == Words{"a", "'sb"});
  CHECK(words("minicpm5", "a'sb 12345") == Words{"a", "'s", "b", " ", "123", "45"});
  CHECK(words("tiny_aya", "Ab 1234567") == Words{"Ab", " ", "1", "234", "567"});
  CHECK(words("gpt-4o", "1234567") == Words{"123", "456", "7"});
  CHECK(words("falcon", "a$`b") == Words{"a", "$`", "b"});
  CHECK(words("default", "a$`b") == Words{"a", "$", "`", "b"});
}
