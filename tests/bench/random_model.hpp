// Writes GGUF files of language models with random weights in the shapes of known models, for benchmarks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace harmonics::engine::bench {

struct ModelShape {
  std::string name, architecture;  // "qwen3-0.6b", "qwen3"
  int64_t width, hidden, layers, heads, key_heads, head_width, vocabulary;
  double rope_base;
  bool head_norms;  // queries and keys are normalised
};

// Throws ErrorKind::Usage with the known names for others.
ModelShape model_shape_named(const std::string& name);

// Writes the model in a mix of types ("q4_k_m", "f16"). Tensors repeat the same numbers at different offsets, so that
// writing takes seconds. The tokenizer encodes bytes; further tokens of the vocabulary occur in no text. The vocabulary
// has at least 258 tokens.
void write_random_model(const ModelShape& shape, const std::string& mix, const std::string& path);

}  // namespace harmonics::engine::bench
