// Transformers in YAML on the command line: listed, checked, explained, and run with the weights of a folder.
#include <catch2/catch.hpp>

#include <filesystem>

#include <boost/json.hpp>

#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const std::string kPrinted = std::string(HARMONICS_SOURCE_DIR) + "/tests/dsl/ndsl/";

// Returns the folder of a tiny Llama with a tokenizer of the same size.
std::string words_folder(const Folder& f) {
  const std::string folder = f / "tiny";
  fs::copy(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/llama3", folder);
  boost::json::object vocab{{"[UNK]", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int i = 3; i < 40; ++i) vocab["w" + std::to_string(i)] = i;
  const boost::json::object words{{"type", "WhitespaceSplit"}};
  const boost::json::object model{{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocab}};
  const boost::json::object file{{"model", model}, {"pre_tokenizer", words}, {"added_tokens", boost::json::array()}};
  f.write("tiny/tokenizer.json", boost::json::serialize(file));
  f.write("tiny/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  return folder;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("transformers in YAML are listed and checked") {
  const Result listed = harmonics("list models");
  CHECK(listed.code == 0);
  CHECK(contains(listed.out, "Qwen3MoE"));
  CHECK(harmonics("list-models --dsl").out == listed.out);
  const Result valid = harmonics("validate " + kPrinted + "Llama2.ndsl " + kPrinted + "GPT_NeoX.ndsl " + kPrinted +
                                 "Qwen3MoE.ndsl " + kPrinted + "MyCustomModel.ndsl Gemma3");
  CHECK(valid.code == 0);
  CHECK(valid.out + valid.err == kPrinted + "Llama2.ndsl: ok\n" + kPrinted + "GPT_NeoX.ndsl: ok\n" + kPrinted +
                                     "Qwen3MoE.ndsl: ok\n" + kPrinted + "MyCustomModel.ndsl: ok\nGemma3: ok\n");
  const Folder f;
  f.write("bad.ndsl", "name: Bad\narchitecture:\n  variant: dense\n  block: [RMSNrom, SwiGLU_FFN]\nconfig: {}\n");
  const Result bad = harmonics("validate " + (f / "bad.ndsl"));
  CHECK(bad.code == 78);
  CHECK(contains(bad.err, "did you mean 'RMSNorm'?"));
  CHECK(contains(bad.err, "bad.ndsl:4:11: error: there is no operation 'RMSNrom'"));
}

TEST_CASE("transformers in YAML are explained") {
  const auto model = boost::json::parse(harmonics("explain Llama2 --set num_layers=2 --json").out).at("transformer");
  CHECK(model.at("parameters").as_int64() == 666'914'816);
  CHECK(model.at("blocks").as_array().size() == 2);
  CHECK(model.at("blocks").at(0).at("forward_ops").as_array().size() == 9);
  const Result text = harmonics("explain " + kPrinted + "Qwen3MoE.ndsl");
  CHECK(contains(text.out, "LN1, QKV, QKNorm, RoPE, Attention, AttnOut, ResidualLN2, Router, Experts, Combine"));
  CHECK(contains(text.out, "layers 0 to 23"));
  for (const std::string part : {"program", "kernels"}) {
    const Result shown = harmonics("explain Llama2 --show " + part);
    CHECK(shown.code == 2);
    CHECK(contains(shown.err, "error: --show " + part + " has no effect: 'Llama2' is a .ndsl file\n"));
    CHECK(contains(shown.err, "harmonics export Llama2 NAME.gguf"));
  }
}

TEST_CASE("a transformer in YAML continues a text with the weights of a folder") {
  if (!contains(harmonics("list importers").out, "huggingface")) return;  // built without PCRE2
  const Folder f;
  const std::string folder = words_folder(f);
  const std::string flags = " 'w5 w6 w7' --temperature 0 --max-tokens 5 --json";
  const Result by_folder = harmonics("generate " + folder + flags);
  const Result by_name = harmonics("generate Llama3 --weights " + folder + flags);
  REQUIRE(by_folder.code == 0);
  REQUIRE(by_name.code == 0);
  CHECK(boost::json::parse(by_name.out).at("text") == boost::json::parse(by_folder.out).at("text"));
  const Result without = harmonics("generate Llama3" + flags);
  CHECK(without.code == 2);
  CHECK(contains(without.err, "lacks --weights FOLDER"));
}
