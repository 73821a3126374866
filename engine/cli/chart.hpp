// Line charts as SVG: panels over one another that share their horizontal axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace harmonics::cli {

using Points = std::vector<std::pair<double, double>>;

struct Series {
  std::string name;  // in the legend; "": not there
  std::string colour;
  Points points;
  double opacity = 1;
  bool dots = false;  // a mark at every point
};

struct Panel {
  std::string title;
  bool percent = false;  // 0.98 is written 98 %
  double bottom = 0, top = 1;
  std::vector<Series> series;
};

// `right`: where the horizontal axis ends. No panel: a picture that says so.
std::string chart_svg(const std::vector<Panel>& panels, double right, const std::string& horizontal);

// Each point the mean of its neighbourhood, a fortieth of the curve wide, and narrower towards its ends, which stay.
Points smoothed(const Points& points);

// A round step (1, 2, 5 times a power of ten) so that about `lines` fit into the span.
double round_step(double span, double lines = 5);

std::string escaped(const std::string& text);  // for XML and HTML

}  // namespace harmonics::cli
