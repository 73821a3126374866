// A run as a picture: one self-contained HTML page (or an SVG of the curve alone).
#pragma once

#include <optional>
#include <string>

#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics::cli {

// The learning curve as SVG (loss left, accuracy right when there is one).
std::string curve_svg(const CycleReport& report);
// .svg: the curve; else HTML: settings, figures, curve, and, when the test or training stream holds images, a grid of them with
// what the graph says they are.
void write_report(HarmonicGraph& graph, const CycleReport& report, const std::optional<Evaluation>& test, const RunSettings& settings, const std::string& path);

}  // namespace harmonics::cli
