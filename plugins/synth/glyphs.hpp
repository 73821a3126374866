// Variants of the ten handwritten digits: skeletons of strokes in a unit square, x to the right, y down.
#pragma once

#include <cstdint>
#include <vector>

namespace synth {

struct Point {
  float x, y;
};
// A smooth curve through its points. A corner is the end of one stroke and the start of the next.
using Stroke = std::vector<Point>;
struct Glyph {
  std::vector<Stroke> strokes;
  uint32_t weight;  // frequency of this variant
};

// Returns the variants of a digit, 0 to 9.
const std::vector<Glyph>& glyphs_of(uint32_t digit);

}  // namespace synth
