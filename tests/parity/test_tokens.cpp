// Compares GGUF's tokenizers with the packages `tokenizers` and `sentencepiece` (make_tokens.py).
#include <catch2/catch.hpp>

#include <cstdlib>

#include "tests/plugins/gguf_files.hpp"

using namespace harmonics;
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

void check(const Tokenizer& tokenizer, const char* reference, bool reversible = true) {
  const auto& texts = golden_tokens().at("texts").as_array();
  const auto& ids = golden_tokens().at(reference).as_array();
  REQUIRE(texts.size() >= 400);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text(texts[i].as_string());
    INFO(reference << ", text " << i << ": " << texts[i]);
    const auto found = tokenizer.encode(text, {false, false, false});
    CHECK(found == boost::json::value_to<std::vector<int32_t>>(ids[i]));
    if (reversible) CHECK(tokenizer.decode(found) == text);
  }
}

// Returns a vocabulary with scores from the golden file. `set` writes further metadata.
template <typename Set>
std::shared_ptr<const Tokenizer> scored_vocabulary(const char* name, const char* model, Set set) {
  const auto& vocabulary = golden_tokens().at(name);
  GgufWriter writer;
  writer.set_text("tokenizer.ggml.model", model);
  writer.set("tokenizer.ggml.tokens", boost::json::value_to<std::vector<std::string>>(vocabulary.at("pieces")));
  writer.set("tokenizer.ggml.token_type", boost::json::value_to<std::vector<int32_t>>(vocabulary.at("kinds")));
  writer.set("tokenizer.ggml.scores", boost::json::value_to<std::vector<float>>(vocabulary.at("scores")));
  set(writer);
  return tokenizer_of(writer.header());
}

// Returns a WordPiece vocabulary as converters to GGUF write it, with "##ing".
std::shared_ptr<const Tokenizer> word_piece_vocabulary(const char* name, bool lowercase) {
  auto tokens = boost::json::value_to<std::vector<std::string>>(golden_tokens().at(name));
  std::vector<int32_t> kinds;
  for (std::string& token : tokens) {
    const bool special = token.size() > 2 && token.front() == '[' && token.back() == ']';
    kinds.push_back(special ? 3 : 1);
    if (!special) token = token.rfind("##", 0) == 0 ? token.substr(2) : "\xE2\x96\x81" + token;
  }
  GgufWriter writer;
  writer.set_text("tokenizer.ggml.model", "bert");
  writer.set("tokenizer.ggml.tokens", tokens);
  writer.set("tokenizer.ggml.token_type", kinds);
  if (!lowercase) writer.set_bool("tokenizer.ggml.normalizer.lowercase", false);
  return tokenizer_of(writer.header());
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

TEST_CASE("parity: tokens of a Unigram vocabulary equal those of `sentencepiece`") {
  const auto prefixed = [](GgufWriter& writer) { writer.set_bool("tokenizer.ggml.add_space_prefix", true); };
  check(*scored_vocabulary("unigram_vocabulary", "t5", prefixed), "unigram");
}

TEST_CASE("parity: tokens of a Unigram vocabulary with replacements equal those of `sentencepiece`") {
  const auto rules = [](GgufWriter& writer) {
    writer.set("tokenizer.ggml.precompiled_charsmap",
               boost::json::value_to<std::vector<int32_t>>(golden_tokens().at("charsmap")));
    writer.set_bool("tokenizer.ggml.remove_extra_whitespaces", true);
  };
  check(*scored_vocabulary("unigram_rules_vocabulary", "unigram", rules), "unigram_rules", false);
}

TEST_CASE("parity: tokens of WordPiece vocabularies equal those of `tokenizers`") {
  check(*word_piece_vocabulary("word_pieces_vocabulary", true), "word_pieces", false);
  check(*word_piece_vocabulary("word_pieces_cased_vocabulary", false), "word_pieces_cased", false);
}
