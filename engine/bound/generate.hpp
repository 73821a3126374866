// Generates text with a graph that maps a window of symbols to scores of the next symbol at every position.
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
  double seconds = 0;  // time limit, after at least one symbol; 0: none
};

// Requires one producer of symbols and one result of shape [positions, symbols]. Throws ErrorKind::Usage otherwise, and
// for text of the prompt that the vocabulary lacks. `emit` receives each generated symbol; the prompt is not repeated.
// If positions interact only by causal attention, keys and values are cached and each symbol costs one position, and
// "" is returned. Otherwise the whole window runs for every symbol, and the reason is returned.
std::string generate(BoundGraph& graph, int cycle, const GenerateSettings& settings,
                     const std::function<void(const std::string&)>& emit);

}  // namespace harmonics::engine
