// Pictures of a run as SVG: the learning curve and the confusion matrix.
#pragma once

#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

// Draws loss over steps, and below it accuracy or the first metric of validation. Faint: each point; strong: the
// trend; dots: validation.
std::string curve_svg(const CycleReport& report);

// Draws truth by prediction, shaded by the share of the true class, with recall beside and precision below. `names`:
// of the classes, or empty.
std::string confusion_svg(const MetricTable& table, const std::vector<std::string>& names, const std::string& title);

// Returns the classes that were confused most often, at most three, in one line: "4 for 9 (12 of 980), …".
std::string confusion_text(const MetricTable& table, const std::vector<std::string>& names);

// Draws one image in 16 greys. Runs of equal grey become one rectangle each.
std::string image_svg(const float* pixels, int64_t rows, int64_t columns);

}  // namespace harmonics::engine::cli
