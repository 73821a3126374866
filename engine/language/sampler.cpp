#include "engine/language/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "engine/base/philox.hpp"

namespace harmonics::engine {

int32_t sample(std::span<const float> scores, const SamplerSettings& settings, uint64_t draw) {
  const auto best = static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  if (settings.temperature <= 0) return static_cast<int32_t>(best);
  const auto weight = [&](float score) { return std::exp((score - scores[best]) / settings.temperature); };
  double sum = 0;
  for (float score : scores) sum += weight(score);
  const auto word = philox({static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), 0, 0},
                           philox_key(settings.seed, stream_of("generate", 8)));
  double left = unit_float(word[0]) * sum;
  for (size_t i = 0; i < scores.size(); ++i) {
    left -= weight(scores[i]);
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best);
}

}  // namespace harmonics::engine
