// Writes a language model with random weights, for benchmarks and for comparisons with other programs.
//   make_model qwen3-0.6b|llama-3.2-1b|tiny MIX OUTPUT.gguf [VOCABULARY] [LAYERS]
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "tests/bench/random_model.hpp"

int main(int argc, char** argv) {
  using namespace harmonics::engine::bench;
  if (argc < 4 || argc > 6) {
    std::fprintf(stderr, "usage: make_model SHAPE MIX OUTPUT.gguf [VOCABULARY] [LAYERS]\n");
    return 2;
  }
  try {
    ModelShape shape = model_shape_named(argv[1]);
    if (argc > 4) shape.vocabulary = std::atoll(argv[4]);
    if (argc > 5) shape.layers = std::atoll(argv[5]);
    write_random_model(shape, argv[2], argv[3]);
  } catch (const harmonics::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}
