// Writes text with a graph that maps a window of symbols to scores of the next one at every position.
#pragma once

#include <functional>
#include <string>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

struct GenerateSettings : DeviceSettings {
  std::string prompt;
  int64_t symbols = 400;
  double temperature = 0.8;  // 0: always the most likely symbol
  uint64_t seed = 0;
  int threads = 0;
  double seconds = 0;  // ends after this time, with at least one symbol; 0: no limit
};

// Requires one producer of symbols and one result of [positions, symbols]; else throws ErrorKind::Usage saying what
// is missing. `emit` receives each symbol as it is written (the prompt is not repeated). A symbol of the prompt
// missing from the vocabulary is an error. Each symbol costs one step where the flow keeps positions apart but for
// causal attention; else the whole window runs again for every symbol, and the reason is returned.
std::string generate(BoundGraph& graph, int cycle, const GenerateSettings& settings,
                     const std::function<void(const std::string&)>& emit);

}  // namespace harmonics::engine
