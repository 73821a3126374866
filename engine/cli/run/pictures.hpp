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

// How the numbers of a stream's pictures become levels, the same for all of them.
struct PixelScale {
  float low = 0, high = 0;     // drawn as the ends of the scale
  bool dark_on_light = false;  // greys: `low` is white
};

// Returns the scale of pictures that are shown together. It includes 0; infinite and NaN values are left out. Greys are
// drawn as they are, the largest white, unless more than half of the pixels are in the lowest tenth of the range: such
// pictures are strokes on an empty ground, and drawn dark on light.
PixelScale pixel_scale(const std::vector<const std::vector<float>*>& pictures);

// Returns an <img> with the picture inside it as PNG, at most 96 pixels a side; larger ones are averaged. `pixels` has
// the size of `shape`. `what` is the alternative text.
std::string image_html(const std::vector<float>& pixels, const PictureShape& shape, const PixelScale& scale,
                       const std::string& what);

}  // namespace harmonics::engine::cli
