// Tokens of GGUF's tokenizers beside those of the packages `tokenizers` and `sentencepiece`: make_tokens.py.
#include <catch2/catch.hpp>

#include <cstdlib>

#include "tests/plugins/gguf_files.hpp"

using namespace harmonics::engine;

namespace {

// HARMONICS_TEST_TOKENS: another output of make_tokens.py, with more texts.
const boost::json::value& golden_tokens() {
  static const boost::json::value all = [] {
    const char* other = std::getenv("HARMONICS_TEST_TOKENS");
    return boost::json::parse(
        read_file(other ? other : std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/tokens.json"));
  }();
  return all;
}

void check(const Tokenizer& tokenizer, const char* reference) {
  const auto& texts = golden_tokens().at("texts").as_array();
  const auto& ids = golden_tokens().at(reference).as_array();
  REQUIRE(texts.size() >= 400);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text(texts[i].as_string());
    INFO(reference << ", text " << i << ": " << texts[i]);
    const auto found = tokenizer.encode(text, {false, false, false});
    CHECK(found == boost::json::value_to<std::vector<int32_t>>(ids[i]));
    CHECK(tokenizer.decode(found) == text);
  }
}

std::string folder_of(const char* vocabulary) {
  const std::string data = journeys::data_folder(), folder = data + "/" + vocabulary;
  return data.empty() || !std::filesystem::exists(folder + "/vocab.json") ? "" : folder;
}

}  // namespace

TEST_CASE("parity: tokens of byte-pair vocabularies equal those of `tokenizers`") {
  if (const std::string folder = folder_of("tiny-gpt2"); !folder.empty())
    check(*tokenizer_of(byte_pair_file(folder, "gpt-2")), "gpt2");
  if (const std::string folder = folder_of("tokenizer/qwen2"); !folder.empty())
    check(*tokenizer_of(byte_pair_file(folder, "qwen2")), "qwen2");
}

TEST_CASE("parity: tokens of a SentencePiece vocabulary equal those of `sentencepiece`") {
  const auto& vocabulary = golden_tokens().at("vocabulary");
  check(*tokenizer_of(vocabulary_file("llama", boost::json::value_to<std::vector<std::string>>(vocabulary.at("pieces")),
                                      boost::json::value_to<std::vector<int32_t>>(vocabulary.at("kinds")),
                                      boost::json::value_to<std::vector<float>>(vocabulary.at("scores")))),
        "sentencepiece");
}
