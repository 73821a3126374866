#include "engine/cli/run/report.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <thread>

#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/cli/terminal/chart.hpp"
#include "engine/cli/run/pictures.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/measure/examples.hpp"

namespace harmonics::engine::cli {

namespace {

std::string figure_text(const Figure& f) {
  if (!std::isfinite(f.value)) return "–";
  if (f.name == "accuracy" || f.name.rfind("top", 0) == 0) return percent(f.value);
  return fmt::format("{:.4g}", f.value);
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown processor";
}

class Table {
 public:
  void row(const std::string& name, const std::string& value) {
    rows_ += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
  }
  std::string html() const { return "<table>\n" + rows_ + "</table>\n"; }

 private:
  std::string rows_;
};

std::string card(const std::string& value, const std::string& what) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", escaped(value), escaped(what));
}

// The key figures of a run.
std::string cards(const ReportedRun& run) {
  std::string s = "<div class=\"cards\">\n";
  const CycleReport& r = run.cycle;
  if (const Evaluation* e = final_evaluation(run)) {
    const std::string word = run.test ? "test " : "validation ";
    if (e->accuracy >= 0) s += card(percent(e->accuracy), word + "accuracy");
    s += card(fmt::format("{:.4g}", e->loss), word + "loss");
  } else {
    if (r.accuracy >= 0) s += card(percent(r.accuracy), "training accuracy");
    s += card(fmt::format("{:.4g}", r.loss), "training loss");
  }
  s += card(duration(r.seconds), thousands(r.samples) + " samples, stopped by " + r.stopped_by);
  s += card(thousands(std::lround(r.samples_per_second)), "samples a second");
  return s + "</div>\n";
}

std::string figures_html(const ReportedRun& run) {
  const CycleReport& r = run.cycle;
  Table t;
  t.row("training loss", fmt::format("{:.4g}", r.loss));
  if (r.accuracy >= 0) t.row("training accuracy", percent(r.accuracy));
  const auto add = [&](const std::string& word, const Evaluation& e) {
    t.row(word, fmt::format("loss {:.4g} over {} samples", e.loss, thousands(e.samples)));
    for (const LayerFigures& layer : e.layers)
      for (const Figure& f : layer.figures)
        if (f.name != "loss" || e.layers.size() > 1)
          t.row(fmt::format("{} {}{}", word, e.layers.size() > 1 ? layer.layer + "." : "", f.name), figure_text(f));
  };
  if (!r.by_epoch.empty() && r.by_epoch.back().validation) add("validation", *r.by_epoch.back().validation);
  if (run.test) add("test", *run.test);
  return "<h2>Figures</h2>\n" + t.html();
}

int64_t trained_weights(BoundGraph& graph, const CycleReport& r) {
  int64_t n = 0;
  for (const std::string& name : r.trained)
    if (const StoredTensor* t = graph.store().find(name)) n += t->type.shape.count();
  return n;
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[40];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M %z", &local) ? text : "";
}

std::string settings_html(BoundGraph& graph, const ReportedRun& run) {
  const ResolvedSettings settings = graph.settings(0, run.settings);
  const CycleReport& r = run.cycle;
  Table t;
  if (!run.command.empty()) t.row("command", run.command);
  t.row("optimizer", settings.training());
  t.row("steps", fmt::format("{} of {} samples, stopped by {}", thousands(r.steps),
                             settings.batch * settings.accumulate, r.stopped_by));
  t.row("learning rate of the last step", fmt::format("{:g}", r.learning_rate));
  t.row("weights trained", thousands(trained_weights(graph, r)));
  t.row("seed", std::to_string(settings.seed));
  for (int n : graph.graph().order())
    if (const auto it = graph.widths().of.find(n); it != graph.widths().of.end())
      t.row(graph.graph().nodes[static_cast<size_t>(n)].name, it->second.shape.str() + " · " + it->second.reason);
  std::string s = "<h2>Settings</h2>\n" + t.html();
  Table machine;
  machine.row("date", date_text());
  machine.row("processor", cpu_name());
  machine.row("threads", std::to_string(run.settings.threads > 0
                                            ? run.settings.threads
                                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));
  machine.row("device", run.settings.device);
  machine.row("harmonics", HARMONICS_VERSION);
  return s + "<h2>Machine</h2>\n" + machine.html();
}

std::string name_of(const Examples& e, int64_t c) {
  return c >= 0 && static_cast<size_t>(c) < e.names.size() ? e.names[static_cast<size_t>(c)] : std::to_string(c);
}

std::string pictures_html(const Examples& examples, const std::vector<Example>& samples) {
  std::string s = "<div class=\"grid\">\n";
  for (const Example& e : samples) {
    const bool wrong = e.label != e.predicted;
    s += fmt::format("<figure class=\"{}\">{}<figcaption>{}{}</figcaption></figure>\n", wrong ? "wrong" : "right",
                     image_svg(e.pixels.data(), e.rows, e.columns), escaped(name_of(examples, e.predicted)),
                     wrong ? " (" + escaped(name_of(examples, e.label)) + ")" : "");
  }
  return s + "</div>\n";
}

std::string numbers_text(const std::vector<float>& v) {
  std::string s;
  for (size_t i = 0; i < std::min<size_t>(v.size(), 6); ++i) s += fmt::format("{}{:.4g}", i ? ", " : "", v[i]);
  return v.size() > 6 ? s + ", …" : s;
}

std::string rows_html(const Examples& examples, const std::vector<Example>& samples) {
  std::string s = "<table class=\"rows\"><tr><th>sample</th><th>predicted</th><th>actual</th></tr>\n";
  size_t shown = 0;
  for (const Example& e : samples) {
    if (shown++ == 20) break;
    const bool wrong = examples.classes && e.label != e.predicted;
    s += fmt::format("<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td></tr>\n", wrong ? "wrong" : "", e.number,
                     examples.classes ? escaped(name_of(examples, e.predicted)) : numbers_text(e.prediction),
                     examples.classes ? escaped(name_of(examples, e.label)) : numbers_text(e.target));
  }
  return s + "</table>\n";
}

std::string examples_html(BoundGraph& graph, const RunSettings& settings) {
  StreamSet& streams = !graph.test_streams().empty()         ? graph.test_streams()
                       : !graph.validation_streams().empty() ? graph.validation_streams()
                                                             : graph.streams();
  constexpr int64_t kShown = 30;
  Examples examples;
  try {
    examples = examples_of(graph, streams, kShown, settings);
  } catch (const Error& e) {  // including errors in data that ended the run
    return fmt::format("<h2>Sample predictions</h2>\n<p>None could be read: {}</p>\n", escaped(e.what()));
  }
  if (examples.samples.empty()) return "";
  const bool pictures = examples.classes && !examples.samples.front().pixels.empty();
  const auto shown = [&](const std::vector<Example>& samples) {
    return pictures ? pictures_html(examples, samples) : rows_html(examples, samples);
  };
  std::string s = "<h2>Sample predictions</h2>\n";
  if (pictures) s += "<p>Blue where the prediction is right, red with the true class where it is wrong.</p>\n";
  if (!examples.worst.empty())
    s += fmt::format("<h3>The worst of the first {}</h3>\n", thousands(examples.judged)) + shown(examples.worst);
  else
    s += fmt::format("<p>The first {} are all right.</p>\n", thousands(examples.judged));
  return s + "<h3>The first ones</h3>\n" + shown(examples.samples);
}

// Lists events besides steps, and the notes of the run.
std::string events_html(const CycleReport& r) {
  std::string s;
  if (!r.events.empty()) {
    Table t;
    for (const RunEvent& e : r.events)
      t.row(fmt::format("step {}, {}", thousands(e.step), duration(e.seconds)), e.text);
    s += "<h2>Events</h2>\n" + t.html();
  }
  if (!r.notes.empty()) {
    s += "<h2>Notes</h2>\n<ul>\n";
    for (const std::string& note : r.notes) s += "<li>" + escaped(note) + "</li>\n";
    s += "</ul>\n";
  }
  return s;
}

const LayerFigures* counted(const ReportedRun& run) {
  if (const Evaluation* e = final_evaluation(run))
    for (const LayerFigures& layer : e->layers)
      if (layer.table.side > 0) return &layer;
  return nullptr;
}

std::string confusion_title(const ReportedRun& run) {
  return fmt::format("{} of {} samples", run.test ? "Test" : "Validation", thousands(final_evaluation(run)->samples));
}

constexpr const char* kStyle =
    ":root{--ink:#1c2733;--soft:#55606b;--line:#e6e8eb;--blue:#2563a8;--red:#c8463c}body{font:15px/1.5 "
    "system-ui,sans-serif;max-width:780px;margin:2rem auto;padding:0 1rem;color:var(--ink)}"
    "h1{font-size:1.6rem;margin-bottom:.5rem}h3{font-size:1rem;margin:1.2rem 0 .5rem}h2{font-size:1.1rem;margin:2.2rem "
    "0 .6rem;padding-top:.8rem;border-top:1px solid var(--line)}svg{max-width:100%;height:auto}"
    ".wide{overflow-x:auto}.wide svg{min-width:560px}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:1rem "
    "0}.card{border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem}"
    ".card b{display:block;font-size:1.25rem}.card span{color:var(--soft);font-size:.85rem}"
    "table{border-collapse:collapse}th{text-align:left;font-weight:600;padding:.15rem 1.5rem .15rem "
    "0;vertical-align:top;white-space:nowrap}td{padding:.15rem 1.5rem .15rem 0;overflow-wrap:anywhere}"
    ".rows td,.rows th{padding:.2rem 2rem .2rem 0;border-bottom:1px solid "
    "var(--line);font-variant-numeric:tabular-nums}.rows .wrong td{color:var(--red)}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(56px,1fr));gap:8px}figure{margin:0;text-align:"
    "center}figure svg{width:100%;background:#f4f4f4;border-radius:4px}"
    "figcaption{font-size:.8rem}.right figcaption{color:var(--blue)}.wrong "
    "figcaption{color:var(--red);font-weight:700}.wrong svg{outline:2px solid var(--red)}"
    "pre{background:#f6f7f8;padding:1rem;overflow:auto;border-radius:6px;font-size:13px}";

}  // namespace

const Evaluation* final_evaluation(const ReportedRun& run) {
  if (run.test) return &*run.test;
  for (auto it = run.cycle.by_epoch.rbegin(); it != run.cycle.by_epoch.rend(); ++it)
    if (it->validation) return &*it->validation;
  return nullptr;
}

void write_report(BoundGraph& graph, const ReportedRun& run, const std::string& path) {
  const std::string title = escaped(graph.graph().name);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n",
      title, kStyle, title);
  html += cards(run) + "<h2>Learning curve</h2>\n<div class=\"wide\">" + curve_svg(run.cycle) + "</div>\n" +
          figures_html(run);
  if (const LayerFigures* layer = counted(run))
    html += "<h2>Confusion matrix</h2>\n<div class=\"wide\">" +
            confusion_svg(layer->table, class_names(graph, layer->layer), confusion_title(run)) + "</div>\n";
  html += examples_html(graph, run.settings) + events_html(run.cycle) + settings_html(graph, run);
  if (graph.graph().source) html += "<h2>The flow</h2>\n<pre>" + escaped(graph.graph().source->text()) + "</pre>\n";
  write_file_atomically(path, html + "</body></html>\n");
}

void write_confusion(BoundGraph& graph, const ReportedRun& run, const std::string& path) {
  const LayerFigures* layer = counted(run);
  if (!layer)
    throw Error(ErrorKind::Usage,
                "there is no confusion matrix to draw: no layer was evaluated by classes on validation or test data");
  write_file_atomically(path, confusion_svg(layer->table, class_names(graph, layer->layer),
                                            fmt::format("{} · {}", layer->layer, confusion_title(run))));
}

}  // namespace harmonics::engine::cli
