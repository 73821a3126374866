// A few samples with what a graph says of them and what they are: what a report shows.
#pragma once

#include <string>
#include <vector>

#include "engine/bound/harmonic_graph.hpp"

namespace harmonics {

struct Example {
  std::vector<float> pixels;  // [rows, columns], when the sample is a picture
  int64_t rows = 0, columns = 0;
  std::vector<float> prediction, target;  // numbers; `target` is empty where classes are compared
  int64_t predicted = -1, label = -1;     // classes
  int64_t number = 0;                     // of the sample in its stream, from 0
  double badness = 0;                     // 0: right; of numbers the mean squared error
};

struct Examples {
  std::string layer;
  bool classes = false;
  std::vector<std::string> names;  // of the classes, or empty
  std::vector<Example> worst;      // the worst first; none that are right
  std::vector<Example> samples;    // the first ones
  int64_t judged = 0;              // samples among which the worst were found
};

// The first `count` samples of `streams`, and as many of the worst of the first few thousand, judged at the first
// tapped layer of the first cycle that has one value a sample. No samples when there is none, or when a stream was read
// to its end for good.
Examples examples_of(HarmonicGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings);

// Names of the classes that a layer is judged by, when its target stream has them.
std::vector<std::string> class_names(HarmonicGraph& graph, const std::string& layer);

}  // namespace harmonics
