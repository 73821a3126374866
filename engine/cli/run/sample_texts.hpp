// Texts that a language model continues while it is trained, with the weights as they are between two steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/cli/options/sample_settings.hpp"

namespace harmonics::engine::cli {

struct SampledText {
  std::string prompt, text;  // without the prompt
};

// Continues each prompt with the first model("FILE") of the flow, token by token over its caches. Reads the weights
// where training has them, and changes nothing; no step may run meanwhile. `seed`: of the choice of tokens. Throws
// ErrorKind::Usage for a flow without such a model, or one that generates no text, and for prompts that are longer
// than its context; ErrorKind::Diverged for scores that are not finite.
std::vector<SampledText> sample_texts(BoundGraph& graph, const SampleSettings& settings, const RunSettings& run,
                                      uint64_t seed);

}  // namespace harmonics::engine::cli
