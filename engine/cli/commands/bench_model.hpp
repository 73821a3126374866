// harmonics bench MODEL: measures token rates of a language model.
#pragma once

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// Measures prefill and decoding with random tokens, prints a table or JSON and returns the exit code.
int bench_model(const Options& options);

}  // namespace harmonics::engine::cli
