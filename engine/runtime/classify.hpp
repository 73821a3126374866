// A few image samples with the class a graph gives them: what a report shows.
#pragma once

#include <vector>

#include "engine/runtime/harmonic_graph.hpp"

namespace harmonics {

struct Classified {
  std::vector<float> pixels;  // [rows, columns]
  int64_t rows = 0, columns = 0;
  int64_t predicted = -1, label = -1;  // label -1: unknown
};

// The first `count` samples of `streams`. Empty when the first cycle's graph has no image producer (a square of values) or no
// layer of classes.
std::vector<Classified> classify_images(HarmonicGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings);

}  // namespace harmonics
