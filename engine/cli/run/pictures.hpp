// Pictures of a run: the learning curve and the confusion matrix as SVG, samples as PNG.
#pragma once

#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"
#include "engine/measure/examples.hpp"

namespace harmonics::engine::cli {

// Draws loss over steps, and below it accuracy or the first metric of validation. Faint: each point; strong: the
// trend; dots: validation.
std::string curve_svg(const CycleReport& report);

// Draws truth by prediction, shaded by the share of the true class, with recall beside and precision below. `names`:
// of the classes, or empty.
std::string confusion_svg(const MetricTable& table, const std::vector<std::string>& names, const std::string& title);

// Returns the classes that were confused most often, at most three, in one line: "4 for 9 (12 of 980), …".
std::string confusion_text(const MetricTable& table, const std::vector<std::string>& names);

// The values that are drawn as the ends of the scale.
struct PixelRange {
  float low = 0, high = 0;
  void include(const std::vector<float>& values);  // infinite and NaN ones are left out
};

// Returns an <img> with the picture inside it as PNG, at most 96 pixels a side; larger ones are averaged. Greys are
// drawn dark on light. `pixels` has the size of `shape`. `what` is the alternative text.
std::string image_html(const std::vector<float>& pixels, const PictureShape& shape, const PixelRange& range,
                       const std::string& what);

}  // namespace harmonics::engine::cli
