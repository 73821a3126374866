#include "engine/cli/terminal/chart.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr double kLeft = 64, kRight = 24, kWidth = 620, kTop = 40, kHeight = 190, kGap = 52, kFoot = 48;

struct Frame {
  double y0, right;
  const Panel& panel;

  double x(double v) const { return kLeft + kWidth * v / right; }
  double y(double v) const {
    return y0 + kHeight * (panel.top - std::clamp(v, panel.bottom, panel.top)) / (panel.top - panel.bottom);
  }
};

std::string axis_text(double v, bool percent) {
  if (percent) return fmt::format("{:g} %", std::round(v * 1e4) / 100 + 0.0);  // avoids -0
  return fmt::format("{:g}", std::abs(v) < 1e-12 ? 0 : v);
}

void grid(std::string& s, const Frame& f) {
  const double step = round_step(f.panel.top - f.panel.bottom, 4);
  for (double v = std::ceil(f.panel.bottom / step - 1e-9) * step; v <= f.panel.top + step * 1e-6; v += step)
    s += fmt::format(
        "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#e6e8eb\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft, f.y(v), kLeft + kWidth, f.y(v), kLeft - 8, f.y(v) + 4, axis_text(v, f.panel.percent));
}

// Returns the parts of a curve within the panel, clipped at the top.
std::vector<Points> within(const Points& points, double top) {
  std::vector<Points> parts(1);
  for (size_t i = 0; i < points.size(); ++i) {
    const auto [x, y] = points[i];
    if (i > 0) {
      const auto [x0, y0] = points[i - 1];
      if ((y > top) != (y0 > top)) {
        parts.back().emplace_back(x0 + (x - x0) * (top - y0) / (y - y0), top);
        if (y > top) parts.emplace_back();
      }
    }
    if (y <= top) parts.back().emplace_back(x, y);
  }
  std::erase_if(parts, [](const Points& part) { return part.empty(); });
  return parts;
}

void line(std::string& s, const Frame& f, const Series& series) {
  for (const Points& points : within(series.points, f.panel.top)) {
    if (points.size() > 1) {
      s += fmt::format(
          "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" opacity=\"{:g}\" "
          "points=\"",
          series.colour, series.opacity);
      for (const auto& [x, y] : points) s += fmt::format("{:.1f},{:.1f} ", f.x(x), f.y(y));
      s += "\"/>\n";
    }
    if (series.dots || points.size() == 1)
      for (const auto& [x, y] : points)
        s += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"#fff\" stroke=\"{}\" stroke-width=\"1.8\"/>\n", f.x(x),
            f.y(y), series.colour);
  }
}

// Marks the highest value above the panel and prints it.
void beyond(std::string& s, const Frame& f) {
  const std::pair<double, double>* highest = nullptr;
  for (const Series& series : f.panel.series)
    for (const auto& point : series.points)
      if (point.second > f.panel.top && (!highest || point.second > highest->second)) highest = &point;
  if (!highest) return;
  const double x = std::max(f.x(highest->first), kLeft + 6);
  s += fmt::format(
      "<path class=\"beyond\" d=\"M{:.1f} {:.1f}l-4 7h8z\" fill=\"#8a939c\"/><text x=\"{:.1f}\" y=\"{:.1f}\">up to {} "
      "at step {}</text>\n",
      x, f.y0 + 1, x + 8, f.y0 + 9,
      f.panel.percent ? axis_text(highest->second, true) : fmt::format("{:.4g}", highest->second),
      thousands(static_cast<int64_t>(highest->first)));
}

void heading(std::string& s, const Frame& f) {
  s += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"600\" font-size=\"13\" fill=\"#1c2733\">{}</text>\n", kLeft,
                   f.y0 - 14, escaped(f.panel.title));
  double x = kLeft + kWidth;
  for (auto it = f.panel.series.rbegin(); it != f.panel.series.rend(); ++it) {
    if (it->name.empty()) continue;
    s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", x, f.y0 - 14, escaped(it->name));
    x -= 6.2 * static_cast<double>(it->name.size()) + 8;
    s += fmt::format("<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"2.4\"/>\n",
                     x - 16, f.y0 - 18, x, f.y0 - 18, it->colour);
    x -= 32;
  }
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string s;
  for (char c : text) switch (c) {
      case '<':
        s += "&lt;";
        break;
      case '>':
        s += "&gt;";
        break;
      case '&':
        s += "&amp;";
        break;
      case '"':
        s += "&quot;";
        break;
      default:
        s += c;
    }
  return s;
}

double round_step(double span, double lines) {
  const double raw = std::max(span, 1e-12) / lines, power = std::pow(10, std::floor(std::log10(raw))), m = raw / power;
  return power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

Points smoothed(const Points& points) {
  const size_t widest = points.size() / 80;
  Points result;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t reach = std::min({widest, i, points.size() - 1 - i}), first = i - reach, last = i + reach + 1;
    double sum = 0;
    for (size_t j = first; j < last; ++j) sum += points[j].second;
    result.emplace_back(points[i].first, sum / static_cast<double>(last - first));
  }
  return result;
}

std::string chart_svg(const std::vector<Panel>& panels, double right, const std::string& horizontal) {
  const double n = static_cast<double>(std::max<size_t>(panels.size(), 1));
  const double width = kLeft + kWidth + kRight, height = kTop + n * kHeight + (n - 1) * kGap + kFoot;
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" font-family=\"system-ui, "
      "sans-serif\" font-size=\"11\" fill=\"#55606b\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height, width);
  if (panels.empty()) return s + fmt::format("<text x=\"{}\" y=\"{}\">no step was taken</text></svg>\n", kLeft, kTop);
  for (size_t i = 0; i < panels.size(); ++i) {
    const Frame f{kTop + static_cast<double>(i) * (kHeight + kGap), right, panels[i]};
    grid(s, f);
    for (const Series& series : panels[i].series) line(s, f, series);
    beyond(s, f);
    heading(s, f);
    const double step = round_step(right, 6);
    for (double v = 0; v <= right * 1.0001; v += step)
      s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", f.x(v), f.y0 + kHeight + 16,
                       step >= 1 ? thousands(static_cast<int64_t>(v)) : fmt::format("{:g}", v));
  }
  s += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", kLeft + kWidth / 2, height - 12,
                   escaped(horizontal));
  return s + "</svg>\n";
}

}  // namespace harmonics::engine::cli
