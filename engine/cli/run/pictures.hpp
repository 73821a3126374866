// Draws the learning curve and the confusion matrix of a run as SVG, and samples as PNG.
#pragma once

#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"
#include "engine/measure/examples.hpp"

namespace harmonics::engine::cli {

// Draws the loss by step, and below it the accuracy or the first validation metric: points faintly, the trend as a
// line, validations as dots.
std::string curve_svg(const CycleReport& report);

// Draws the confusion matrix, shaded by the share of the true class, with recall at the right and precision below.
// `names` are those of the classes, or empty.
std::string confusion_svg(const MetricTable& table, const std::vector<std::string>& names, const std::string& title);

// Returns up to three of the most frequent confusions in one line: "4 for 9 (12 of 980), …".
std::string confusion_text(const MetricTable& table, const std::vector<std::string>& names);

// Maps the numbers of images to grey or colour levels, equally for all images of a stream.
struct PixelScale {
  float low = 0, high = 0;     // numbers at the ends of the scale
  bool dark_on_light = false;  // for grey images: `low` is white
};

// Returns a common scale for images that are shown together. It includes 0 and ignores infinite and NaN values. The
// largest grey is white, unless more than half of the pixels are in the lowest tenth of the range: such images are
// strokes on an empty background and are drawn dark on light.
PixelScale pixel_scale(const std::vector<const std::vector<float>*>& pictures);

// Returns an <img> that contains the image as PNG with at most 96 pixels per side; larger images are averaged. `pixels`
// has the size of `shape`. `what` is the alternative text.
std::string image_html(const std::vector<float>& pixels, const PictureShape& shape, const PixelScale& scale,
                       const std::string& what);

}  // namespace harmonics::engine::cli
