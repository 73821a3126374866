// Generates texts with a language model during its training, with the weights between two steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/cli/options/sample_settings.hpp"

namespace harmonics::engine::cli {

struct SampledText {
  std::string prompt, text;  // `text` excludes the prompt
};

// Continues each prompt with the first model("FILE") of the flow, token by token with its caches. Reads the weights in
// place and changes nothing; no step may run concurrently. `seed` seeds the sampling. Throws ErrorKind::Usage for a
// flow without such a model, for a model that generates no text, and for prompts longer than its context;
// ErrorKind::Diverged for scores that are not finite.
std::vector<SampledText> sample_texts(BoundGraph& graph, const SampleSettings& settings, const RunSettings& run,
                                      uint64_t seed);

}  // namespace harmonics::engine::cli
