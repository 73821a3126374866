#include "engine/cli/commands/top_view.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "formats/utf8.hpp"
#include "engine/cli/remote/run_link.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr double kStale = 2;  // seconds without an answer after which the state is marked as stale
constexpr const char *kGood = "32", *kHigh = "33", *kBad = "1;31", *kSoft = "2", *kStrong = "1", *kLine = "36";

size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string cut(const std::string& text, size_t width) {
  if (columns(text) <= width) return text;
  if (width == 0) return "";
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && ++seen == width) break;
  return text.substr(0, at) + "…";
}

std::string in_one_line(const std::string& text) {
  std::string line = visible(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

// A line of coloured pieces. Removes terminal control characters, because names and errors of a run may contain any
// bytes.
class ScreenLine {
 public:
  ScreenLine& add(const std::string& text, const char* colour = "") {
    pieces_.emplace_back(in_one_line(text), colour);
    return *this;
  }
  // Adds a text cut or padded to `width` columns, and two blanks.
  ScreenLine& column(const std::string& text, size_t width, const char* colour = "") {
    const std::string fitting = cut(in_one_line(text), width);
    add(fitting, colour);
    return add(std::string(width - columns(fitting) + 2, ' '));
  }
  std::string text(size_t width, bool colours) const {
    std::string all;
    size_t left = width;
    for (const auto& [piece, colour] : pieces_) {
      const std::string fitting = cut(piece, left);
      left -= columns(fitting);
      all += colours && *colour ? fmt::format("\x1b[{}m{}\x1b[0m", colour, fitting) : fitting;
    }
    const size_t end = all.find_last_not_of(' ');
    return end == std::string::npos ? "" : all.substr(0, end + 1);
  }

 private:
  std::vector<std::pair<std::string, const char*>> pieces_;
};

std::string shown(double v, const char* otherwise = "–") {
  return std::isnan(v) ? otherwise : fmt::format("{:.4g}", v);
}
std::string per_second(double v) {
  std::string text = std::isnan(v) ? "–" : rate(v);
  const size_t at = text.find(" samples");
  return at == std::string::npos ? text : text.erase(at, 8);
}

std::string bar(double share, size_t width) {
  std::string text = "[";
  for (size_t i = 0; i < width; ++i)
    text += static_cast<double>(i) < share * static_cast<double>(width) - 0.25 ? "█" : "·";
  return text + "]";
}

const char* colour_of_pressure(double v) { return v >= 0.9 ? kBad : v >= 0.5 ? kHigh : kGood; }
const char* colour_of_health(const std::string& v) { return v == "failed" ? kBad : v == "degraded" ? kHigh : kGood; }

// Returns whether the metric repeats the loss: a graph with one loss reports it as "loss" and as "output.loss".
bool is_the_loss(const json::object& metrics, std::string_view name, const json::value& value) {
  const json::value* loss = metrics.if_contains("loss");
  return name.ends_with(".loss") && loss && *loss == value;
}

class View {
 public:
  View(const TopFacts& facts, const TopLook& look) : facts_(facts), s_(facts.status), look_(look) {}

  std::vector<std::string> lines() {
    if (s_.empty()) {
      line().add(facts_.said.empty() ? "waiting for the run" : facts_.said);
      return text();
    }
    head();
    figures();
    losses();
    streams();
    layers();
    log();
    return text();
  }

 private:
  ScreenLine& line() { return lines_.emplace_back(); }

  void head() {
    const std::string state = text_in(s_, "state"), health = text_in(s_, "health");
    ScreenLine& l = line().add(text_in(s_, "graph"), kStrong).add("  ").add(state, state == "running" ? kGood : kHigh);
    if (health != "ok") l.add("  streams ").add(health, colour_of_health(health));
    if (number_in(s_, "cycles") > 1)
      l.add(fmt::format("  cycle {} of {}", count_text(number_in(s_, "cycle")), count_text(number_in(s_, "cycles"))));
    l.add("  epoch " + count_text(number_in(s_, "epoch")));
    if (const double epochs = number_in(s_, "epochs"); !std::isnan(epochs)) l.add(" of " + count_text(epochs));
    if (const double fraction = number_in(s_, "fraction"); !std::isnan(fraction))
      l.add(fmt::format("  {} {:.0f} %", bar(fraction, 20), 100 * fraction));
    if (facts_.silent > kStale) l.add(fmt::format("  silent for {}", duration(facts_.silent)), kBad);
  }

  void figures() {
    line().add(fmt::format("step {}  samples {}  {}  {} steps/s  {}", count_text(number_in(s_, "step")),
                           count_text(number_in(s_, "samples")),
                           rate(std::max(0.0, number_in(s_, "samples_per_second"))),
                           shown(number_in(s_, "steps_per_second")), duration(number_in(s_, "seconds"))));
    ScreenLine& l = line().add("loss ").add(shown(number_in(s_, "loss")), kStrong);
    if (const json::object* metrics = object_in(s_, "metrics"))
      for (const auto& [name, value] : *metrics)
        if (name != "loss" && !is_the_loss(*metrics, name, value))
          l.add(fmt::format("  {} {}", std::string(name), value.is_number() ? shown(value.to_number<double>()) : "–"));
    if (const double rate = number_in(s_, "learning_rate"); !std::isnan(rate)) l.add(fmt::format("  lr {:.3g}", rate));
    const json::value* set = s_.if_contains("learning_rate_set");
    if (set && set->is_bool() && set->get_bool()) l.add(" (set)", kHigh);
    if (const json::object* window = object_in(s_, "window")) {
      ScreenLine& w =
          line().add(fmt::format("before training on them, the last {}:", count_text(number_in(*window, "samples"))));
      if (const json::object* metrics = object_in(*window, "metrics"))
        for (const auto& [name, value] : *metrics)
          if (!is_the_loss(*metrics, name, value))
            w.add(
                fmt::format("  {} {}", std::string(name), value.is_number() ? shown(value.to_number<double>()) : "–"));
    }
    if (const json::object* kept = object_in(s_, "checkpoint"))
      line().add(fmt::format("checkpoint: step {}, {} ago, {}", count_text(number_in(*kept, "step")),
                             duration(number_in(*kept, "seconds_ago")), text_in(*kept, "path")));
    if (const json::object* serving = object_in(s_, "serving"); serving && number_in(*serving, "requests") > 0)
      line().add(fmt::format("predictions: {} requests, {:.3g}/s, p50 {} ms, p99 {} ms, {} refused",
                             count_text(number_in(*serving, "requests")), number_in(*serving, "requests_per_second"),
                             shown(number_in(*serving, "p50_ms")), shown(number_in(*serving, "p99_ms")),
                             count_text(number_in(*serving, "refused"))));
  }

  void losses() {
    if (facts_.losses.size() < 2) return;
    std::vector<double> values;
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const auto& [step, loss] : facts_.losses) {
      values.push_back(loss > 0 ? std::log(loss) : std::numeric_limits<double>::quiet_NaN());
      if (!std::isnan(loss)) low = std::min(low, loss), high = std::max(high, loss);
    }
    if (!(low <= high)) return;
    line();
    const std::string range = fmt::format("  {:.3g} … {:.3g}, logarithmic", low, high);
    line()
        .add("loss ")
        .add(spark_text(values,
                        std::min<size_t>(look_.width > range.size() + 12 ? look_.width - range.size() - 6 : 10, 120)),
             kLine)
        .add(range, kSoft);
  }

  void streams() {
    const json::array* all = array_in(s_, "streams");
    if (!all || all->empty()) return;
    line();
    line()
        .column("stream", 20, kSoft)
        .column("state", 19, kSoft)
        .column("rate", 9, kSoft)
        .column("queue", 30, kSoft)
        .column("lag", 9, kSoft)
        .column("lost", 7, kSoft)
        .column("twice", 7, kSoft);
    for (const json::value& v : *all)
      if (v.is_object()) stream(v.get_object());
  }

  void stream(const json::object& s) {
    const std::string health = text_in(s, "health");
    const double full = number_in(s, "back_pressure"), lost = number_in(s, "lost"), lag = number_in(s, "lag_seconds");
    ScreenLine& l =
        line()
            .column(text_in(s, "name"), 20)
            .column(text_in(s, "state") + (health == "ok" ? "" : " " + health), 19, colour_of_health(health))
            .column(per_second(number_in(s, "rate")), 9);
    const std::string queue = std::isnan(full) ? "–"
                                               : fmt::format("{} {:3.0f} % {}", bar(full, 10), 100 * full,
                                                             count_text(number_in(s, "queued_samples")));
    l.column(queue, 30, std::isnan(full) ? "" : colour_of_pressure(full))
        .column(std::isnan(lag) ? "–" : duration(lag), 9);
    l.column(count_text(lost), 7, lost > 0 ? kBad : "").column(count_text(number_in(s, "duplicates")), 7);
    if (const std::string out = left_out_text(s); !out.empty()) line().add("    " + out, kHigh);
    if (full >= 0.9) line().add("    blocks its senders", kHigh);
    if (const std::string error = text_in(s, "last_error"); !error.empty()) line().add("    " + error, kBad);
  }

  void layers() {
    const json::array* all = array_in(facts_.layers, "layers");
    if (!all || all->empty()) return;
    line();
    line()
        .column("layer", 20, kSoft)
        .column("weights", 12, kSoft)
        .column("norm", 9, kSoft)
        .column("gradient", 9, kSoft)
        .column("mean", 10, kSoft)
        .column("zero", 5, kSoft)
        .add("activations", kSoft);
    const size_t most = look_.height > 0 ? std::max<size_t>(4, look_.height / 3) : all->size();
    for (size_t i = 0; i < std::min(most, all->size()); ++i)
      if ((*all)[i].is_object()) layer((*all)[i].get_object());
    if (all->size() > most) line().add(fmt::format("{} more", all->size() - most), kSoft);
  }

  void layer(const json::object& o) {
    ScreenLine& l = line()
                        .column(text_in(o, "name"), 20)
                        .column(count_text(number_in(o, "parameters")), 12)
                        .column(shown(number_in(o, "weight_norm")), 9)
                        .column(shown(number_in(o, "gradient_norm")), 9);
    const json::object* a = object_in(o, "activation");
    if (!a) return;
    l.column(shown(number_in(*a, "mean")), 10).column(fmt::format("{:.0f} %", 100 * number_in(*a, "zeros")), 5);
    std::vector<double> counts;
    if (const json::array* c = array_in(*a, "counts"))
      for (const json::value& v : *c) counts.push_back(v.is_number() ? std::sqrt(v.to_number<double>()) : 0);
    l.add(spark_text(counts, 16), kLine)
        .add(fmt::format("  {} … {}", shown(number_in(*a, "from")), shown(number_in(*a, "to"))), kSoft);
    if (const double wrong = number_in(*a, "not_finite"); wrong > 0)
      l.add(fmt::format("  {} not finite", count_text(wrong)), kBad);
  }

  void log() {
    if (facts_.lines.empty()) return;
    const size_t foot = look_.keys ? 2 : 0;
    size_t room = 8;
    if (look_.height > 0)
      room =
          look_.height > lines_.size() + foot + 1 ? std::min<size_t>(16, look_.height - lines_.size() - foot - 1) : 0;
    if (room == 0) return;
    line();
    const size_t first = facts_.lines.size() - std::min(facts_.lines.size(), room);
    for (size_t i = first; i < facts_.lines.size(); ++i) line().add(facts_.lines[i]);
  }

  // Returns the lines that fit. If keys are shown, they are the last line.
  std::vector<std::string> text() {
    std::vector<std::string> all;
    for (const ScreenLine& l : lines_) all.push_back(l.text(look_.width, look_.colours));
    if (!look_.keys) return all;
    const size_t room = look_.height > 2 ? look_.height - 2 : 0;
    all.resize(room);
    all.push_back(ScreenLine().add(facts_.said, kHigh).text(look_.width, look_.colours));
    all.push_back(ScreenLine()
                      .add("q quits · p pauses and resumes · s steps · c writes a checkpoint", kSoft)
                      .text(look_.width, look_.colours));
    return all;
  }

  const TopFacts& facts_;
  const json::object& s_;
  const TopLook& look_;
  std::deque<ScreenLine> lines_;  // references stay valid
};

}  // namespace

std::vector<std::string> top_view(const TopFacts& facts, const TopLook& look) { return View(facts, look).lines(); }

void TopFacts::add(int64_t step, double loss) {
  if (!losses.empty() && step <= losses.back().first) {
    if (step == losses.back().first) return;
    losses.clear();
  }
  losses.emplace_back(step, loss);
  if (losses.size() <= kMostPoints) return;
  for (size_t i = 0; i < losses.size() / 2; ++i) losses[i] = losses[2 * i];
  losses.resize(losses.size() / 2);
}

void TopFacts::take_history(const json::object& history) {
  const json::array *names = array_in(history, "names"), *points = array_in(history, "points");
  if (!names || !points) return;
  const auto name = std::find(names->begin(), names->end(), json::value("loss"));
  if (name == names->end()) return;
  const auto at = static_cast<size_t>(name - names->begin());
  losses.clear();
  for (const json::value& p : *points) {
    const json::array* values = p.is_object() ? array_in(p.get_object(), "values") : nullptr;
    if (values && at < values->size() && (*values)[at].is_number())
      add(static_cast<int64_t>(number_in(p.get_object(), "step")), (*values)[at].to_number<double>());
  }
}

void TopFacts::take_status(json::object now) {
  if (!status.empty() && number_in(status, "cycle") != number_in(now, "cycle")) losses.clear();
  status = std::move(now);
  silent = 0;
  const double step = number_in(status, "step"), loss = number_in(status, "loss");
  if (step > 0 && !std::isnan(loss)) add(static_cast<int64_t>(step), loss);
}

void TopFacts::take_log(const json::object& log) {
  const json::array* all = array_in(log, "lines");
  if (!all) return;
  for (const json::value& v : *all) {
    if (!v.is_object()) continue;
    const std::string level = text_in(v.get_object(), "level");
    lines.push_back(fmt::format("{:>12}  {}{}", duration(number_in(v.get_object(), "seconds")),
                                level == "note" ? "" : level + ": ", text_in(v.get_object(), "text")));
    if (lines.size() > kMostLines) lines.pop_front();
  }
}

std::string spark_text(const std::vector<double>& values, size_t width) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (double v : values)
    if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  std::string text;
  const size_t n = std::min(width, values.size());
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    int seen = 0;
    for (size_t k = i * values.size() / n; k < (i + 1) * values.size() / n; ++k)
      if (std::isfinite(values[k])) sum += values[k], ++seen;
    if (seen == 0)
      text += ' ';
    else
      text +=
          kBlocks[high > low ? static_cast<size_t>(std::clamp((sum / seen - low) / (high - low) * 7.99, 0.0, 7.0)) : 0];
  }
  return text;
}

}  // namespace harmonics::engine::cli
