// Draws line charts as SVG: stacked panels with a common horizontal axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace harmonics::engine::cli {

using Points = std::vector<std::pair<double, double>>;

struct Series {
  std::string name;  // shown in the legend; "": no entry
  std::string colour;
  Points points;
  double opacity = 1;
  bool dots = false;  // a mark per point instead of a line
};

struct Panel {
  std::string title;
  bool percent = false;  // 0.98 is shown as 98 %
  double bottom = 0, top = 1;
  std::vector<Series> series;
};

// Returns the chart. `right` is the end of the horizontal axis. Without panels the chart contains only a note.
std::string chart_svg(const std::vector<Panel>& panels, double right, const std::string& horizontal);

// Replaces each point by the mean of a window around it. The window is a fortieth of the curve wide and narrows towards
// the ends, which are unchanged.
Points smoothed(const Points& points);

// Returns a round step (1, 2 or 5 times a power of ten) that divides the span by about `lines` lines.
double round_step(double span, double lines = 5);

std::string escaped(const std::string& text);  // escapes for XML and HTML

}  // namespace harmonics::engine::cli
