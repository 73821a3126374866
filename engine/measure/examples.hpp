// Selects samples with their predictions and targets for a report.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"

namespace harmonics::engine {

// The layout of a sample as an image; false if it is not an image.
struct PictureShape {
  int64_t rows = 0, columns = 0;
  int64_t channels = 1;  // 1: grey; 3: red, green, blue
  bool planes = false;   // true: [channels, rows, columns]; false: [rows, columns, channels]

  explicit operator bool() const { return rows > 0; }
  int64_t count() const { return rows * columns * channels; }
  size_t at(int64_t row, int64_t column, int64_t channel) const {
    return static_cast<size_t>(planes ? (channel * rows + row) * columns + column
                                      : (row * columns + column) * channels + channel);
  }
};

struct Example {
  std::vector<float> pixels;                               // the image; bytes are scaled to [0, 1]
  std::vector<float> prediction, target;                   // `target` is empty if classes are compared
  int64_t predicted = -1, label = -1;                      // classes
  int64_t number = 0;                                      // index of the sample in its stream
  double loss = std::numeric_limits<double>::quiet_NaN();  // loss of this sample; NaN: unknown
  bool wrong = false;
  double badness = 0;  // rank of wrong samples: a margin, a share of positions, or the loss

  // For sequences, by position: input tokens, expected class (-1: none) and predicted class. The prediction at position
  // i depends at least on the tokens up to i. `tokens` is empty if the input has no symbols.
  std::vector<int64_t> tokens, expected, chosen;
};

struct Examples {
  std::string layer;
  bool classes = false;              // each sample has one class
  bool sequences = false;            // each position of a sequence has a class
  std::vector<std::string> names;    // names of the classes, or empty
  std::vector<std::string> symbols;  // names of Example::tokens
  PictureShape input, output;        // layouts of Example::pixels, and of prediction and target
  std::vector<Example> worst;        // wrong samples, the worst first
  std::vector<Example> samples;      // the first samples
  int64_t judged = 0;                // number of samples examined
};

// Returns the first `count` samples of `streams`, and up to `count` of the worst among the first few thousand (for
// sequences, among the first few thousand positions). Compares prediction and target at the first tapped layer of the
// first cycle with one prediction per sample, or else at the first one with a named class at each position of a
// sequence. Returns no samples if there is no such layer or if a stream is live or of unknown size.
Examples examples_of(BoundGraph& graph, StreamSet& streams, int64_t count, const RunSettings& settings);

// Returns the names of a layer's classes; empty if its target stream has none.
std::vector<std::string> class_names(BoundGraph& graph, const std::string& layer);

}  // namespace harmonics::engine
