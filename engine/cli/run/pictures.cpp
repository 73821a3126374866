#include "engine/cli/run/pictures.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <fmt/core.h>
#include <png.h>

#include "engine/cli/terminal/chart.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr const char* kTraining = "#2563a8";
constexpr const char* kValidationColour = "#d9681d";

// Returns the upper bound of the axis: the largest value, or the 98th percentile if the first steps would make the rest
// of the curve unreadably flat. The chart then marks higher values.
double top_of(const Points& training, const Points& validation) {
  std::vector<double> all;
  for (const auto& [x, y] : training) all.push_back(y);
  std::sort(all.begin(), all.end());
  double top = all.empty() ? 0 : all.back();
  if (!all.empty()) {
    constexpr double kFlattened = 20;
    const double usual = all[std::min(all.size() - 1, all.size() * 98 / 100)];
    if (top > kFlattened * usual && usual > 0) top = usual;
  }
  for (const auto& [x, y] : validation) top = std::max(top, y);
  return std::max(top * 1.08, 1e-9);
}

void add_series(Panel& panel, const Points& training, const Points& validation) {
  if (!training.empty()) {
    panel.series.push_back({"", kTraining, training, 0.22});
    panel.series.push_back({"training", kTraining, smoothed(training)});
  }
  if (!validation.empty()) panel.series.push_back({"validation", kValidationColour, validation, 1, true});
}

Panel loss_panel(const Points& training, const Points& validation) {
  Panel panel{.title = "loss", .bottom = 0, .top = top_of(training, validation), .series = {}};
  for (const Points* points : {&training, &validation})
    for (const auto& [x, y] : *points) panel.bottom = std::min(panel.bottom, y);
  add_series(panel, training, validation);
  return panel;
}

Panel accuracy_panel(const Points& training, const Points& validation) {
  std::vector<double> all;
  for (const Points* points : {&training, &validation})
    for (const auto& [x, y] : *points) all.push_back(y);
  std::sort(all.begin(), all.end());
  Panel panel{.title = "accuracy",
              .percent = true,
              .bottom = std::min(0.95, std::floor(all.front() * 20) / 20),
              .top = 1,
              .series = {}};
  add_series(panel, training, validation);
  return panel;
}

Panel figure_panel(const std::string& name, const Points& validation) {
  Panel panel{.title = name, .bottom = validation.front().second, .top = validation.front().second, .series = {}};
  for (const auto& [x, y] : validation) panel.bottom = std::min(panel.bottom, y), panel.top = std::max(panel.top, y);
  if (panel.bottom > 0 && panel.bottom < panel.top * 0.7) panel.bottom = 0;
  const double margin = std::max((panel.top - panel.bottom) * 0.1, std::abs(panel.top) * 1e-3 + 1e-9);
  panel.top += margin;
  if (panel.bottom != 0) panel.bottom -= margin;
  add_series(panel, {}, validation);
  return panel;
}

// Returns the validation values at the end of each epoch.
Points validated(const CycleReport& report, const std::string& name) {
  Points points;
  for (const EpochReport& e : report.by_epoch)
    if (e.validation)
      if (const double* v = e.validation->find(name); v && std::isfinite(*v))
        points.emplace_back(static_cast<double>(e.step), *v);
  return points;
}

// Returns the name of the first validation figure that is not a loss.
std::string first_figure(const CycleReport& report) {
  for (const EpochReport& e : report.by_epoch)
    if (e.validation)
      for (const LayerFigures& layer : e.validation->layers)
        for (const Figure& f : layer.figures)
          if (f.name != "loss") return f.name;
  return "";
}

// ---- confusion ----

struct Grid {
  double cell, x0, y0;
  size_t n;
  bool slanted;  // names above columns that are wider than their columns
  double at(size_t i) const { return static_cast<double>(i) * cell; }
};

std::string name_of(const std::vector<std::string>& names, size_t i) {
  return i < names.size() ? names[i] : std::to_string(i);
}

// Returns a colour from white to blue, or to red if not `right`, for the share.
std::string shade(double share, bool right) {
  const auto mix = [&](int to) { return static_cast<int>(std::lround(255 + (to - 255) * std::sqrt(share))); };
  return right ? fmt::format("rgb({},{},{})", mix(37), mix(99), mix(168))
               : fmt::format("rgb({},{},{})", mix(200), mix(70), mix(60));
}

void cells(std::string& s, const Grid& g, const MetricTable& table) {
  for (size_t truth = 0; truth < g.n; ++truth) {
    double row = 0;
    for (size_t c = 0; c < g.n; ++c) row += table.cells[truth * g.n + c];
    for (size_t c = 0; c < g.n; ++c) {
      const double count = table.cells[truth * g.n + c], share = row > 0 ? count / row : 0;
      s += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>",
                       g.x0 + g.at(c), g.y0 + g.at(truth), g.cell, g.cell,
                       count > 0 ? shade(share, truth == c) : "#fff");
      if (count > 0 && g.cell >= 22)
        s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
                         g.x0 + g.at(c) + g.cell / 2, g.y0 + g.at(truth) + g.cell / 2 + 4,
                         share > 0.35 ? "#fff" : "#1c2733", static_cast<int64_t>(count));
    }
    s += "\n";
  }
  const double side = g.at(g.n);
  s += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#c9ced4\"/>\n",
                   g.x0, g.y0, side, side);
}

void margins(std::string& s, const Grid& g, const MetricTable& table, const std::vector<std::string>& names) {
  const double side = g.at(g.n);
  const size_t every = g.cell >= 14 ? 1 : static_cast<size_t>(std::ceil(14 / g.cell));
  for (size_t i = 0; i < g.n; i += every) {
    double row = 0, column = 0;
    for (size_t c = 0; c < g.n; ++c) row += table.cells[i * g.n + c], column += table.cells[c * g.n + i];
    const double right = table.cells[i * g.n + i], y = g.y0 + g.at(i) + g.cell / 2 + 4, x = g.x0 + g.at(i) + g.cell / 2;
    s += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", g.x0 - 8, y,
                     escaped(name_of(names, i)));
    if (g.slanted)
      s += fmt::format("<text x=\"{0:.1f}\" y=\"{1:.1f}\" transform=\"rotate(-60 {0:.1f} {1:.1f})\">{2}</text>", x + 3,
                       g.y0 - 6, escaped(name_of(names, i)));
    else
      s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x, g.y0 - 8,
                       escaped(name_of(names, i)));
    s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#8a939c\">{}</text>", g.x0 + side + 8, y,
                     row > 0 ? fmt::format("{:.1f} %", 100 * right / row) : "–");
    if (g.cell >= 34)
      s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#8a939c\">{}</text>\n", x,
                       g.y0 + side + 16, column > 0 ? fmt::format("{:.1f} %", 100 * right / column) : "–");
  }
  if (g.slanted)  // the names are where it would be
    s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">predicted</text>\n", g.x0 - 8, g.y0 - 8);
  else
    s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">predicted</text>\n", g.x0 + side / 2,
                     g.y0 - 26);
  s += fmt::format(
      "<text x=\"16\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1f})\">actual</text>\n",
      g.y0 + side / 2, g.y0 + side / 2);
  s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" fill=\"#8a939c\">recall</text>\n", g.x0 + side + 8,
                   g.slanted ? g.y0 + side + 16 : g.y0 - 8);
  if (g.cell >= 34)
    s += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#8a939c\">precision</text>\n", g.x0 - 8,
                     g.y0 + side + 16);
}

// ---- samples ----

std::vector<uint8_t> png(const std::vector<uint8_t>& pixels, int64_t rows, int64_t columns, int64_t channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(columns);
  image.height = static_cast<png_uint_32>(rows);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::vector<uint8_t> file(PNG_IMAGE_PNG_SIZE_MAX(image));
  png_alloc_size_t size = file.size();
  if (!png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr))
    throw Error(ErrorKind::Output,
                fmt::format("a picture of {} x {} pixels cannot be drawn as PNG: {}", columns, rows, image.message));
  file.resize(size);
  return file;
}

std::string base64(const std::vector<uint8_t>& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace

std::string curve_svg(const CycleReport& report) {
  if (report.curve.empty()) return chart_svg({}, 1, "");
  Points loss, accuracy;
  for (const CurvePoint& p : report.curve) {
    loss.emplace_back(static_cast<double>(p.step), p.loss);
    if (p.accuracy >= 0) accuracy.emplace_back(static_cast<double>(p.step), p.accuracy);
  }
  std::vector<Panel> panels{loss_panel(loss, validated(report, "loss"))};
  const std::string figure = first_figure(report);
  if (accuracy.size() == loss.size())
    panels.push_back(accuracy_panel(accuracy, validated(report, "accuracy")));
  else if (const Points points = validated(report, figure); !points.empty())
    panels.push_back(figure_panel(figure, points));
  double right = static_cast<double>(std::max<int64_t>(1, report.curve.back().step));
  if (!report.by_epoch.empty()) right = std::max(right, static_cast<double>(report.by_epoch.back().step));
  return chart_svg(panels, right, "steps");
}

std::string confusion_text(const MetricTable& table, const std::vector<std::string>& names) {
  struct Cell {
    double count;
    size_t truth, taken;
  };
  std::vector<Cell> wrong;
  for (size_t i = 0; i < table.cells.size(); ++i)
    if (const Cell c{table.cells[i], i / table.side, i % table.side}; c.count > 0 && c.truth != c.taken)
      wrong.push_back(c);
  if (wrong.empty()) return "no errors";
  const size_t shown = std::min<size_t>(wrong.size(), 3);
  const auto more = [](const Cell& a, const Cell& b) {
    return std::tie(b.count, a.truth, a.taken) < std::tie(a.count, b.truth, b.taken);
  };
  std::partial_sort(wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(shown), wrong.end(), more);
  std::string s = "most frequent errors: ";
  for (size_t i = 0; i < shown; ++i) {
    const Cell& c = wrong[i];
    const auto row = table.cells.begin() + static_cast<std::ptrdiff_t>(c.truth * table.side);
    s += fmt::format("{}{} as {} ({} of {})", i ? ", " : "", name_of(names, c.truth), name_of(names, c.taken),
                     thousands(static_cast<int64_t>(c.count)),
                     thousands(static_cast<int64_t>(std::accumulate(row, row + table.side, 0.0))));
  }
  return s;
}

std::string confusion_svg(const MetricTable& table, const std::vector<std::string>& names, const std::string& title) {
  const size_t n = table.side;
  constexpr double kLetter = 6.5, kTitleLetter = 7.6;
  const auto width_of = [](const std::string& text, double letter) {
    return letter * static_cast<double>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  };
  double widest = 0;
  for (size_t i = 0; i < n; ++i) widest = std::max(widest, width_of(name_of(names, i), kLetter));
  const double cell = std::clamp(560.0 / static_cast<double>(n), 4.0, 48.0);
  const bool slanted = widest > std::max(cell, 14.0);
  const double above = slanted ? 44 + 0.87 * widest : 78,
               across = slanted ? 0.5 * widest : 0;  // of the last name, to the right
  // The row labels have room for "precision".
  const Grid g{cell, 40 + std::max(9 * kLetter, widest), above, n, slanted};
  const double width = g.x0 + std::max(g.at(n) + std::max(72.0, across), width_of(title, kTitleLetter) + 8),
               height = g.y0 + g.at(n) + 34;
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.1f} {:.1f}\" width=\"{:.0f}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"11\" fill=\"#55606b\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      width, height, width);
  s += fmt::format("<text x=\"{}\" y=\"24\" font-weight=\"600\" font-size=\"13\" fill=\"#1c2733\">{}</text>\n", g.x0,
                   escaped(title));
  cells(s, g, table);
  margins(s, g, table, names);
  return s + "</svg>\n";
}

PixelScale pixel_scale(const std::vector<const std::vector<float>*>& pictures) {
  PixelScale scale;
  const auto each = [&](const auto& take) {
    for (const std::vector<float>* values : pictures)
      for (const float v : *values)
        if (std::isfinite(v)) take(v);
  };
  each([&](float v) { scale.low = std::min(scale.low, v), scale.high = std::max(scale.high, v); });
  const float empty = scale.low + (scale.high - scale.low) / 10;
  size_t all = 0, lowest = 0;
  each([&](float v) { ++all, lowest += v <= empty; });
  scale.dark_on_light = 2 * lowest > all;
  return scale;
}

std::string image_html(const std::vector<float>& pixels, const PictureShape& shape, const PixelScale& scale,
                       const std::string& what) {
  constexpr int64_t kSide = 96;
  const int64_t each = (std::max(shape.rows, shape.columns) + kSide - 1) / kSide;  // pixels per side that are averaged
  const int64_t rows = (shape.rows + each - 1) / each, columns = (shape.columns + each - 1) / each;
  const auto mean = [&](int64_t row, int64_t column, int64_t channel) {
    float sum = 0;
    int64_t n = 0;
    for (int64_t r = row * each; r < std::min((row + 1) * each, shape.rows); ++r)
      for (int64_t c = column * each; c < std::min((column + 1) * each, shape.columns); ++c, ++n)
        sum += pixels[shape.at(r, c, channel)];
    return sum / static_cast<float>(n);
  };
  std::vector<uint8_t> bytes;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t k = 0; k < shape.channels; ++k) {
        const float share = (mean(r, c, k) - scale.low) / std::max(scale.high - scale.low, 1e-30f);
        const auto level = static_cast<uint8_t>(share > 0 ? std::lround(255 * std::min(share, 1.0f)) : 0);  // NaN: 0
        bytes.push_back(shape.channels == 1 && scale.dark_on_light ? static_cast<uint8_t>(255 - level) : level);
      }
  const std::string shown = fmt::format("width=\"{}\" height=\"{}\" alt=\"{}\"", columns, rows, escaped(what));
  return fmt::format("<img src=\"data:image/png;base64,{}\" {}>", base64(png(bytes, rows, columns, shape.channels)),
                     shown);
}

}  // namespace harmonics::engine::cli
