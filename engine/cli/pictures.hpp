// Pictures of a run as SVG: its learning curve, and what was taken for what.
#pragma once

#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::cli {

// Loss over steps; below it accuracy, or the first metric of validation. Faint: each point; strong: their trend; dots:
// validation.
std::string curve_svg(const CycleReport& report);

// Truth by prediction, shaded by the share of the truth; recall beside, precision below. `names`: of the classes, or
// empty.
std::string confusion_svg(const MetricTable& table, const std::vector<std::string>& names, const std::string& title);

// The same in a line: the classes that were most often taken for another, at most three: "4 for 9 (12 of 980), …".
std::string confusion_text(const MetricTable& table, const std::vector<std::string>& names);

// One picture, 16 greys. Runs of equal grey are one rectangle each.
std::string image_svg(const float* pixels, int64_t rows, int64_t columns);

}  // namespace harmonics::cli
