// Example samples with a graph's predictions and their targets, for a report.
#pragma once

#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

struct Example {
  std::vector<float> pixels;  // [rows, columns], if the sample is a picture
  int64_t rows = 0, columns = 0;
  std::vector<float> prediction, target;  // numbers; `target` is empty if classes are compared
  int64_t predicted = -1, label = -1;     // classes
  int64_t number = 0;                     // of the sample in its stream, from 0
  double badness = 0;                     // 0: right; for numbers the mean squared error
};

struct Examples {
  std::string layer;
  bool classes = false;
  std::vector<std::string> names;  // of the classes, or empty
  std::vector<Example> worst;      // the worst first; only wrong ones
  std::vector<Example> samples;    // the first ones
  int64_t judged = 0;              // number of samples searched for the worst
};

// Returns the first `count` samples of `streams`, and as many of the worst of the first few thousand. They are judged
// at the first tapped layer of the first cycle with one value a sample. Returns no samples if there is no such layer,
// or if a stream has been consumed and cannot be read again.
Examples examples_of(BoundGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings);

// Names of a layer's classes, if its target stream has them.
std::vector<std::string> class_names(BoundGraph& graph, const std::string& layer);

}  // namespace harmonics::engine
