#include "engine/cli/report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/cli/terminal.hpp"
#include "engine/runtime/classify.hpp"

namespace harmonics::cli {

namespace {

std::string escaped(const std::string& text) {
  std::string s;
  for (char c : text) switch (c) {
      case '<': s += "&lt;"; break;
      case '>': s += "&gt;"; break;
      case '&': s += "&amp;"; break;
      case '"': s += "&quot;"; break;
      default: s += c;
    }
  return s;
}

struct Frame {
  double x0 = 62, y0 = 20, width = 560, height = 240;
};

// A round step so that about five lines fit.
double round_step(double span) {
  const double raw = span / 5, power = std::pow(10, std::floor(std::log10(raw))), m = raw / power;
  return power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

using Points = std::vector<std::pair<double, double>>;

// Each point the mean of its neighbourhood, a fortieth of the curve wide.
Points smoothed(const Points& points) {
  const size_t reach = points.size() / 80;
  Points result;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t first = i < reach ? 0 : i - reach, last = std::min(points.size(), i + reach + 1);
    double sum = 0;
    for (size_t j = first; j < last; ++j) sum += points[j].second;
    result.emplace_back(points[i].first, sum / static_cast<double>(last - first));
  }
  return result;
}

void polyline(std::string& s, const Frame& f, const Points& points, double top, double bottom, double right, const char* colour, double opacity) {
  s += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" opacity=\"{}\" points=\"", colour, opacity);
  for (const auto& [x, y] : points) s += fmt::format("{:.1f},{:.1f} ", f.x0 + f.width * x / right, f.y0 + f.height * (top - std::clamp(y, bottom, top)) / (top - bottom));
  s += "\"/>\n";
}

constexpr const char* kLoss = "#c0504d";
constexpr const char* kAccuracy = "#2e75b6";

void loss_axis(std::string& s, const Frame& f, double top) {
  const double step = round_step(top);
  for (double v = 0; v <= top * 1.0001; v += step) {
    const double y = f.y0 + f.height * (1 - v / top);
    s += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#e3e3e3\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n", f.x0, y, f.x0 + f.width, y, f.x0 - 8, y + 4, v);
  }
  s += fmt::format("<text x=\"16\" y=\"{}\" fill=\"{}\" transform=\"rotate(-90 16 {})\" text-anchor=\"middle\">loss</text>\n", f.y0 + f.height / 2, kLoss, f.y0 + f.height / 2);
}

void accuracy_axis(std::string& s, const Frame& f, double bottom) {
  const double step = round_step(1 - bottom);
  for (double v = 1; v >= bottom - 1e-9; v -= step) s += fmt::format("<text x=\"{}\" y=\"{:.1f}\">{:g} %</text>\n", f.x0 + f.width + 8, f.y0 + f.height * (1 - v) / (1 - bottom) + 4, std::round(v * 1e4) / 100);
  s += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\" transform=\"rotate(90 {} {})\" text-anchor=\"middle\">accuracy</text>\n", f.x0 + f.width + 62, f.y0 + f.height / 2, kAccuracy, f.x0 + f.width + 62, f.y0 + f.height / 2);
}

// 8-bit grey PNG would need a deflater; images are drawn as one SVG rectangle a run of equal grey.
std::string image_svg(const float* pixels, int64_t rows, int64_t columns) {
  std::string s = fmt::format("<svg viewBox=\"0 0 {} {}\" shape-rendering=\"crispEdges\" role=\"img\">", columns, rows);
  float high = 0;
  for (int64_t i = 0; i < rows * columns; ++i) high = std::max(high, pixels[i]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns;) {
      const auto level = [&](int64_t at) { return high > 0 ? static_cast<int>(std::lround(pixels[r * columns + at] / high * 15)) : 0; };
      const int grey = level(c);
      int64_t end = c + 1;
      while (end < columns && level(end) == grey) ++end;
      if (grey > 0) s += fmt::format("<path d=\"M{} {}h{}v1h-{}z\" opacity=\"{:.2f}\"/>", c, r, end - c, end - c, grey / 15.0);
      c = end;
    }
  return s + "</svg>";
}

std::string examples_html(HarmonicGraph& graph, const RunSettings& settings) {
  const std::vector<Classified> examples = classify_images(graph, graph.test_streams().empty() ? graph.streams() : graph.test_streams(), 60, settings);
  if (examples.empty()) return "";
  std::string s = "<h2>What it says of samples</h2>\n<p>Blue where it is right, red with the true class where it is wrong.</p>\n<div class=\"grid\">\n";
  for (const Classified& e : examples) {
    const bool wrong = e.label >= 0 && e.label != e.predicted;
    s += fmt::format("<figure class=\"{}\">{}<figcaption>{}{}</figcaption></figure>\n", wrong ? "wrong" : "right", image_svg(e.pixels.data(), e.rows, e.columns), e.predicted, wrong ? fmt::format(" ({})", e.label) : "");
  }
  return s + "</div>\n";
}

std::string figures_html(HarmonicGraph& graph, const CycleReport& r, const std::optional<Evaluation>& test, const ResolvedSettings& settings) {
  std::string s = "<table>\n";
  const auto row = [&](const std::string& name, const std::string& value) { s += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value)); };
  if (test) {
    if (test->accuracy >= 0) row("test accuracy", percent(test->accuracy));
    row("test loss", fmt::format("{:.4g} over {} samples", test->loss, thousands(test->samples)));
  }
  row("training loss", fmt::format("{:.4g}", r.loss));
  if (r.accuracy >= 0) row("training accuracy", percent(r.accuracy));
  row("samples", fmt::format("{} in {} ({})", thousands(r.samples), duration(r.seconds), rate(r.samples_per_second)));
  row("steps", fmt::format("{} of {} samples, stopped by {}", thousands(r.steps), settings.batch * settings.accumulate, r.stopped_by));
  row("optimizer", settings.training());
  row("seed", std::to_string(settings.seed));
  for (int n : graph.graph().order())
    if (const auto it = graph.widths().of.find(n); it != graph.widths().of.end()) row(graph.graph().nodes[static_cast<size_t>(n)].name, it->second.shape.str() + " · " + it->second.reason);
  return s + "</table>\n";
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2rem auto;padding:0 1rem;color:#222}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}"
    "table{border-collapse:collapse}th{text-align:left;font-weight:600;padding:.15rem 1.5rem .15rem 0;vertical-align:top}td{padding:.15rem 0}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(56px,1fr));gap:8px}figure{margin:0;text-align:center}figure svg{width:100%;background:#f4f4f4;border-radius:4px}"
    "figcaption{font-size:.8rem}.right figcaption{color:#2e75b6}.wrong figcaption{color:#c0504d;font-weight:700}.wrong svg{outline:2px solid #c0504d}svg text{font:11px system-ui,sans-serif}"
    "pre{background:#f6f6f6;padding:1rem;overflow:auto;border-radius:6px;font-size:13px}";

}  // namespace

std::string curve_svg(const CycleReport& report) {
  const Frame f;
  std::string s = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", f.x0 + f.width + 80, f.y0 + f.height + 52, f.x0 + f.width + 80);
  if (report.curve.empty()) return s + "<text x=\"62\" y=\"40\">no step was taken</text></svg>\n";
  // The first steps would flatten the rest: the axis ends at what 98 % of the points stay under.
  std::vector<double> losses;
  double worst = 1;
  bool accuracy = true;
  for (const CurvePoint& p : report.curve) {
    losses.push_back(p.loss);
    accuracy = accuracy && p.accuracy >= 0;
    worst = std::min(worst, p.accuracy);
  }
  std::sort(losses.begin(), losses.end());
  const double top = std::max(losses[losses.size() * 98 / 100 < losses.size() ? losses.size() * 98 / 100 : losses.size() - 1] * 1.1, 1e-9);
  const double right = static_cast<double>(std::max<int64_t>(1, report.curve.back().step));
  loss_axis(s, f, top);
  Points points;
  if (accuracy) {
    std::vector<double> sorted;
    for (const CurvePoint& p : report.curve) sorted.push_back(p.accuracy);
    std::sort(sorted.begin(), sorted.end());
    const double bottom = std::min(0.95, std::floor(sorted[sorted.size() / 50] * 20) / 20);
    accuracy_axis(s, f, bottom);
    for (const CurvePoint& p : report.curve) points.emplace_back(static_cast<double>(p.step), p.accuracy);
    polyline(s, f, points, 1, bottom, right, kAccuracy, 0.25);
    polyline(s, f, smoothed(points), 1, bottom, right, kAccuracy, 1);
    points.clear();
  }
  for (const CurvePoint& p : report.curve) points.emplace_back(static_cast<double>(p.step), p.loss);
  polyline(s, f, points, top, 0, right, kLoss, 0.25);
  polyline(s, f, smoothed(points), top, 0, right, kLoss, 1);
  const double step = round_step(right);
  for (double v = 0; v <= right * 1.0001; v += step) s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", f.x0 + f.width * v / right, f.y0 + f.height + 18, thousands(static_cast<int64_t>(v)));
  s += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">steps</text>\n", f.x0 + f.width / 2, f.y0 + f.height + 38);
  return s + "</svg>\n";
}

void write_report(HarmonicGraph& graph, const CycleReport& report, const std::optional<Evaluation>& test, const RunSettings& settings, const std::string& path) {
  if (path.size() > 4 && path.compare(path.size() - 4, 4, ".svg") == 0) return write_file_atomically(path, curve_svg(report));
  const std::string title = escaped(graph.graph().name);
  std::string html = fmt::format("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n", title, kStyle, title);
  html += figures_html(graph, report, test, graph.settings(0, settings));
  html += "<h2>Learning curve</h2>\n" + curve_svg(report);
  html += examples_html(graph, settings);
  if (graph.graph().source) html += "<h2>The flow</h2>\n<pre>" + escaped(graph.graph().source->text()) + "</pre>\n";
  write_file_atomically(path, html + "</body></html>\n");
}

}  // namespace harmonics::cli
