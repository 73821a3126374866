// Greedy texts of a small model on a device with its own memory, several in one step and one at a time.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>

#include <harmonics/element_type.hpp>

#include "engine/language/decoder.hpp"
#include "tests/engine/language/small_llama.hpp"

namespace harmonics::engine::testing {

using Texts = std::vector<std::vector<int32_t>>;

inline int32_t likeliest(std::span<const float> scores) {
  return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
}

// Continues prompts greedily, all in one step each or one after the other.
inline Texts continued(Decoder& decoder, const Texts& prompts, int tokens, bool together) {
  Texts texts = prompts;
  std::vector<std::unique_ptr<Session>> sessions;
  for (size_t i = 0; i < prompts.size(); ++i) sessions.push_back(std::make_unique<Session>(decoder));
  if (!together) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::span<const int32_t> next = prompts[i];
      for (int t = 0; t < tokens; ++t) {
        texts[i].push_back(likeliest(sessions[i]->append(next)));
        next = std::span(texts[i]).last(1);
      }
    }
    return texts;
  }
  for (int t = 0; t < tokens; ++t) {
    std::vector<StepPart> parts;
    for (size_t i = 0; i < prompts.size(); ++i)
      parts.push_back({sessions[i].get(), t == 0 ? std::span<const int32_t>(texts[i]) : std::span(texts[i]).last(1)});
    decoder.step(parts);
    for (size_t i = 0; i < prompts.size(); ++i) texts[i].push_back(likeliest(parts[i].scores));
  }
  return texts;
}

// Compares texts in one batch with the CPU's, and with those of one text at a time.
inline void check_texts(Executor& executor, const CompileOptions& there) {
  SmallLlama s;
  s.width = 128, s.heads = 4, s.shared = 2, s.hidden = 96, s.vocabulary = 70, s.context = 120;
  const Model exact = small_llama(s);
  Texts prompts;
  for (int64_t i = 0; i < 6; ++i)
    prompts.push_back(some_tokens(i % 2 ? 3 + 17 * i : 1 + i, s.vocabulary, static_cast<uint32_t>(i)));
  prompts.push_back(prompts[5]);  // shares its pages
  for (const auto& [weights, cache] : {std::pair{DType::F32, DType::F32},
                                       {DType::F16, DType::BF16},
                                       {DType::Q8_0, DType::Q8_0},
                                       {DType::F32, DType::F16}}) {
    const ImportedModel imported = imported_from(exact);
    ModelOptions options;
    options.weights = weights;
    options.cache = cache;
    const Model model = model_of(imported, options), same = model_of(imported, options);
    INFO(dtype_name(weights) << " weights, cache of " << dtype_name(cache));
    Decoder on_host(same, executor);
    const Texts expected = continued(on_host, prompts, 12, true);
    Decoder decoder(model, executor, there);
    REQUIRE(decoder.pages());
    CHECK(continued(decoder, prompts, 12, true) == expected);
    CHECK(continued(decoder, prompts, 12, false) == expected);
    CHECK(decoder.pages()->held() == 0);
  }
}

}  // namespace harmonics::engine::testing
