// A small language model with random weights and a byte vocabulary, built in memory.
#pragma once

#include <cstdio>

#include "engine/language/decoder.hpp"
#include "engine/language/tokenizer.hpp"
#include "formats/gguf.hpp"
#include "tests/engine/language/small_llama.hpp"

namespace harmonics::engine::testing {

// "<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", the 256 bytes, and the space.
inline std::shared_ptr<const Tokenizer> byte_tokenizer(const std::string& end = "<|im_end|>") {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<|im_start|>", end};
  std::vector<int32_t> kinds = {2, 3, 3, 3, 3};
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    tokens.emplace_back(name);
    kinds.push_back(6);
  }
  tokens.emplace_back("\xE2\x96\x81");
  kinds.push_back(1);
  GgufWriter writer;
  writer.set_text("tokenizer.ggml.model", "llama");
  writer.set("tokenizer.ggml.tokens", tokens);
  writer.set("tokenizer.ggml.token_type", kinds);
  writer.set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
  writer.set("tokenizer.ggml.bos_token_id", GgufKind::U32, int64_t{1});
  writer.set("tokenizer.ggml.eos_token_id", GgufKind::U32, int64_t{2});
  return Tokenizer::read(writer.header(), "bytes.gguf", Registry::global());
}

constexpr int32_t kFirstByte = 5, kImEnd = 4;

struct SmallLanguage {
  std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  Model model = small_llama({.vocabulary = tokenizer->size(), .context = 400});
  std::unique_ptr<Executor> executor = make_team_executor(2);
  Decoder decoder{model, *executor};
};

}  // namespace harmonics::engine::testing
