// GET /metrics: the Prometheus text format.
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/core.h>

#include "engine/serving/json_text.hpp"

namespace harmonics::engine {

namespace {

// Returns a label value escaped for use in quotes.
std::string escaped(const std::string& text) {
  std::string s;
  for (char c : text) {
    if (c == '\\' || c == '"') s += '\\';
    if (c == '\n')
      s += "\\n";
    else
      s += c;
  }
  return s;
}

class Text {
 public:
  // Must be called before the first value of a metric.
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP harmonics_{} {}\n# TYPE harmonics_{} {}\n", name, help, name, type);
  }
  void value(double v, const std::string& labels = "", const char* suffix = "") {
    const std::string number = std::isnan(v) ? "NaN" : std::isinf(v) ? (v > 0 ? "+Inf" : "-Inf") : fmt::format("{}", v);
    text_ += fmt::format("harmonics_{}{}{} {}\n", name_, suffix, labels.empty() ? "" : "{" + labels + "}", number);
  }
  void single(const char* name, const char* type, const char* help, double v) {
    family(name, type, help);
    value(v);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

void streams(Text& text, const RunStatus& s) {
  using Live = StreamStatus::Live;
  struct Row {
    const char *name, *type, *help;
    std::function<std::optional<double>(const StreamStatus&)> value;
  };
  const auto live = [](auto member) {
    return [member](const StreamStatus& stream) {
      return stream.of_live ? std::optional<double>(static_cast<double>((*stream.of_live).*member)) : std::nullopt;
    };
  };
  const Row rows[] = {
      {"stream_samples_total", "counter", "Samples that steps have used.",
       [](const StreamStatus& stream) { return std::optional<double>(static_cast<double>(stream.samples)); }},
      {"stream_health", "gauge", "0 ok, 1 degraded, 2 failed.",
       [](const StreamStatus& stream) { return std::optional<double>(static_cast<double>(stream.health)); }},
      {"stream_queued_samples", "gauge", "Queued samples.", live(&Live::queued_samples)},
      {"stream_queued_bytes", "gauge", "Queued bytes.", live(&Live::queued_bytes)},
      {"stream_back_pressure", "gauge", "How full the window is, 0 to 1.",
       [](const StreamStatus& stream) { return stream.back_pressure(); }},
      {"stream_lost_total", "counter", "Lost samples: no sender still has them.", live(&Live::lost)},
      {"stream_duplicates_total", "counter", "Duplicate samples.", live(&Live::duplicates)},
      {"stream_dropped_total", "counter", "Samples dropped by edge= for newer ones.", live(&Live::dropped)},
      {"stream_unpaired_total", "counter", "Unmatched samples.", live(&Live::unpaired)},
      {"stream_late_total", "counter", "Late samples: their partners were already used or dropped.", live(&Live::late)},
      {"stream_filled_total", "counter", "Samples repeated for missing ones.", live(&Live::filled)},
      {"stream_refused_total", "counter", "Refused frames.", live(&Live::refused)},
      {"stream_connected", "gauge", "Connected senders.", live(&Live::connected)},
      {"stream_idle_seconds", "gauge", "Time since the last sample.", live(&Live::idle_seconds)},
  };
  for (const Row& row : rows) {
    bool begun = false;
    for (const StreamStatus& stream : s.streams) {
      const std::optional<double> v = row.value(stream);
      if (!v) continue;
      if (!std::exchange(begun, true)) text.family(row.name, row.type, row.help);
      text.value(*v, fmt::format("stream=\"{}\"", escaped(stream.name)));
    }
  }
}

void predictions(Text& text, const AnswerTimes::Report& r) {
  text.family("predict_requests_total", "counter", "Requests by outcome.");
  text.value(static_cast<double>(r.requests), "result=\"answered\"");
  text.value(static_cast<double>(r.refused), "result=\"refused\"");
  text.value(static_cast<double>(r.failed), "result=\"failed\"");
  text.single("predict_samples_total", "counter", "Samples predicted.", static_cast<double>(r.samples));
  text.single("predict_batches_total", "counter", "Batches computed for predictions.", static_cast<double>(r.batches));
  text.single("predict_queued_samples", "gauge", "Queued samples.", static_cast<double>(r.queued));
  text.family("predict_seconds", "histogram", "Time from a request's arrival to its answer.");
  uint64_t below = 0;
  for (size_t i = 0; i < r.histogram.size(); ++i) {
    below += r.histogram[i];
    text.value(static_cast<double>(below),
               i < AnswerTimes::kBuckets.size() ? fmt::format("le=\"{}\"", AnswerTimes::kBuckets[i]) : "le=\"+Inf\"",
               "_bucket");
  }
  text.value(r.seconds, "", "_sum");
  text.value(static_cast<double>(r.requests), "", "_count");
}

}  // namespace

std::string metrics_text(const RunStatus& s, const Snapshot* newest, const AnswerTimes::Report* serving,
                         uint64_t failed) {
  Text text;
  text.single("health", "gauge", "0 ok, 1 degraded, 2 failed.", static_cast<double>(s.health));
  text.single("paused", "gauge", "1 while paused.", s.phase == RunPhase::paused || s.phase == RunPhase::pausing);
  text.single("steps_total", "counter", "Steps since the start of the run.", static_cast<double>(s.step));
  text.single("samples_total", "counter", "Samples since the start of the run.", static_cast<double>(s.samples));
  text.single("samples_per_second", "gauge", "Rate over the last five seconds.", s.samples_per_second);
  text.single("epoch", "gauge", "Current epoch, from 1.", static_cast<double>(s.epoch));
  if (s.learning_rate) text.single("learning_rate", "gauge", "Value of the last step.", *s.learning_rate);
  if (!s.metrics.empty()) text.family("metric", "gauge", "Means over the last 100 steps, and of the last validation.");
  for (const auto& [name, value] : s.metrics) text.value(value, fmt::format("name=\"{}\"", escaped(name)));
  if (s.window && !s.window->metrics.empty())
    text.family("window_metric", "gauge", "Metrics on samples before they are used for training.");
  if (s.window)
    for (const auto& [name, value] : s.window->metrics) text.value(value, fmt::format("name=\"{}\"", escaped(name)));
  if (s.checkpoint)
    text.single("checkpoint_step", "gauge", "Age of the newest checkpoint.", static_cast<double>(s.checkpoint->step));
  if (newest)
    text.single("snapshot_step", "gauge", "Step of the weights used for predictions.",
                static_cast<double>(newest->version().step));
  text.single("requests_failed_total", "counter", "Requests that ended with an unexpected error.",
              static_cast<double>(failed));
  streams(text, s);
  if (serving) predictions(text, *serving);
  return text.take();
}

}  // namespace harmonics::engine
