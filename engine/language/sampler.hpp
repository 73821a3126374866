// Chooses a token from its scores.
#pragma once

#include <cstdint>
#include <span>

namespace harmonics::engine {

struct SamplerSettings {
  double temperature = 0.8;  // 0: always the most likely token
  uint64_t seed = 0;
};

// Returns the index drawn from softmax(scores / temperature); equal settings and `draw`, the number of the draw, give
// the same index. Scores must be finite. Of equal best scores, temperature 0 takes the first.
int32_t sample(std::span<const float> scores, const SamplerSettings& settings, uint64_t draw);

}  // namespace harmonics::engine
