// Example samples with a graph's predictions and their targets, for a report.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

// How the numbers of a sample make a picture; false if they do not.
struct PictureShape {
  int64_t rows = 0, columns = 0;
  int64_t channels = 1;  // 1: greys; 3: red, green, blue
  bool planes = false;   // [channels, rows, columns]; else [rows, columns, channels]

  explicit operator bool() const { return rows > 0; }
  int64_t count() const { return rows * columns * channels; }
  size_t at(int64_t row, int64_t column, int64_t channel) const {
    return static_cast<size_t>(planes ? (channel * rows + row) * columns + column
                                      : (row * columns + column) * channels + channel);
  }
};

struct Example {
  std::vector<float> pixels;                               // Examples::input; bytes are scaled to [0, 1]
  std::vector<float> prediction, target;                   // numbers; `target` is empty if classes are compared
  int64_t predicted = -1, label = -1;                      // classes
  int64_t number = 0;                                      // of the sample in its stream, from 0
  double loss = std::numeric_limits<double>::quiet_NaN();  // of this sample; NaN: unknown
  bool wrong = false;
  double badness = 0;  // of wrong ones, for comparison: a margin, a share of positions, or the loss

  // Sequences, by position: `expected` and `chosen` classes, -1 where none is expected; position i was predicted from
  // the `tokens` up to i at least. `tokens` is empty if the input has no symbols.
  std::vector<int64_t> tokens, expected, chosen;
};

struct Examples {
  std::string layer;
  bool classes = false;              // compared by class, one for a sample
  bool sequences = false;            // compared by class, one for each position of a sequence
  std::vector<std::string> names;    // of the classes, or empty
  std::vector<std::string> symbols;  // of Example::tokens
  PictureShape input, output;        // of Example::pixels; of its prediction and target
  std::vector<Example> worst;        // the worst first; only wrong ones
  std::vector<Example> samples;      // the first ones
  int64_t judged = 0;                // number of samples searched for the worst
};

// Returns the first `count` samples of `streams`, and as many of the worst of the first few thousand (sequences: of
// the first few thousand positions). They are judged at the first tapped layer of the first cycle with one value a
// sample, else at the first with a named class at each position of a sequence. Returns no samples if there is no such
// layer, or if a stream has been consumed and cannot be read again.
Examples examples_of(BoundGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings);

// Names of a layer's classes, if its target stream has them.
std::vector<std::string> class_names(BoundGraph& graph, const std::string& layer);

}  // namespace harmonics::engine
