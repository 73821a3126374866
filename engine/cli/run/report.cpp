#include "engine/cli/run/report.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/base/address.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/base/file.hpp"
#include "engine/cli/terminal/chart.hpp"
#include "engine/cli/run/pictures.hpp"
#include "engine/cli/run/report_samples.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/execution/machine.hpp"
#include "engine/measure/examples.hpp"

namespace harmonics::engine::cli {

namespace {

std::string figure_text(const Figure& f) {
  if (!std::isfinite(f.value)) return "–";
  if (f.name == "accuracy" || f.name.rfind("top", 0) == 0) return percent(f.value);
  return fmt::format("{:.4g}", f.value);
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

int64_t trained_weights(BoundGraph& graph, const CycleReport& r) {
  int64_t n = 0;
  for (const std::string& name : r.trained)
    if (const StoredTensor* t = graph.store().find(name)) n += t->type.shape.count();
  return n;
}

// Returns the key figures of a run as HTML.
std::string cards(BoundGraph& graph, const ReportedRun& run) {
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
  s += card(duration(r.seconds), thousands(r.samples) + " samples; " + end_text(r.stopped_by));
  s += card(thousands(std::lround(r.samples_per_second)), "samples a second");
  s += card(thousands(trained_weights(graph, r)), "weights trained");
  return s + "</div>\n";
}

std::string figures_html(const ReportedRun& run) {
  const CycleReport& r = run.cycle;
  Table t;
  t.row("training loss", fmt::format("{:.4g}", r.loss));
  if (r.accuracy >= 0) t.row("training accuracy", percent(r.accuracy));
  const auto add = [&](const std::string& word, const Evaluation& e) {
    t.row(word, fmt::format("loss {:.4g} over {}", e.loss, number_of(static_cast<uint64_t>(e.samples), "sample")));
    for (const LayerFigures& layer : e.layers)
      for (const Figure& f : layer.figures)
        if (f.name != "loss" || e.layers.size() > 1)
          t.row(fmt::format("{} {}{}", word, e.layers.size() > 1 ? layer.layer + "." : "", f.name), figure_text(f));
  };
  if (!r.by_epoch.empty() && r.by_epoch.back().validation) add("validation", *r.by_epoch.back().validation);
  if (run.test) add("test", *run.test);
  return "<h2>Figures</h2>\n" + t.html();
}

// Formats a time; "" if it is out of the calendar's range.
std::string date_text(std::time_t when) {
  std::tm local{};
  if (!::localtime_r(&when, &local)) return "";
  char text[40];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M %z", &local) ? text : "";
}

std::string host_name() {
  char name[256]{};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Returns size, date and checksum of a data file, which identify its version; "" if it is not a regular file.
std::string version_text(const std::string& path) {
  constexpr uintmax_t kMost = uintmax_t{1} << 30;  // larger files take more than about a second to read
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return "";
  std::string text = fmt::format("{} bytes, changed {}", thousands(found.st_size), date_text(found.st_mtime));
  if (static_cast<uintmax_t>(found.st_size) > kMost) return text + ", too large for a checksum here";
  std::ifstream in(path, std::ios::binary);
  std::vector<char> piece(1 << 20);
  uLong sum = ::crc32_z(0, nullptr, 0);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    sum = ::crc32_z(sum, reinterpret_cast<const Bytef*>(piece.data()), static_cast<size_t>(in.gcount()));
  return in.bad() || !in.eof() ? text + ", unreadable now" : text + fmt::format(", CRC-32 {:08x}", sum);
}

std::string data_html(const ReportedRun& run) {
  Table t;
  std::map<std::string, std::string> versions;  // by path, so that a file with several fields is read once
  for (const ReportedData& data : run.data) {
    const Binding binding = parse_binding(data.address);
    std::string version;
    if (const std::string& path = binding.address.path; binding.address.scheme == "file") {
      const auto known = versions.find(path);
      version = known != versions.end() ? known->second : versions[path] = version_text(path);
    }
    t.row(data.use, without_secrets(data.address) + (version.empty() ? "" : " · " + version));
  }
  return run.data.empty() ? "" : "<h2>Data</h2>\n" + t.html();
}

std::string settings_html(BoundGraph& graph, const ReportedRun& run) {
  const ResolvedSettings settings = graph.settings(0, run.settings);
  const CycleReport& r = run.cycle;
  Table t;
  if (!run.command.empty()) t.row("command", run.command);
  t.row("optimizer", settings.training());
  t.row("steps", fmt::format("{}, each of {}; {}", thousands(r.steps),
                             number_of(static_cast<uint64_t>(settings.batch * settings.accumulate), "sample"),
                             end_text(r.stopped_by)));
  t.row("learning rate of the last step", fmt::format("{:g}", r.learning_rate));
  t.row("weights trained", thousands(trained_weights(graph, r)));
  t.row("seed", std::to_string(settings.seed));
  for (int n : graph.graph().order())
    if (const auto it = graph.widths().of.find(n); it != graph.widths().of.end())
      t.row(graph.graph().nodes[static_cast<size_t>(n)].name, it->second.shape.str() + " · " + it->second.reason);
  std::string s = "<h2>Settings</h2>\n" + t.html();
  Table machine;
  machine.row("date", date_text(std::time(nullptr)));
  machine.row("host", host_name());
  machine.row("processor", processor_name());
  machine.row("threads", std::to_string(run.settings.threads > 0
                                            ? run.settings.threads
                                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));
  machine.row("device", run.settings.device);
  machine.row("harmonics", HARMONICS_VERSION);
  return s + data_html(run) + "<h2>Machine</h2>\n" + machine.html();
}

// Lists the events and the notes of the run.
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
    "center}figure img{width:100%;height:auto;display:block;image-rendering:pixelated;border-radius:4px}"
    "figcaption{font-size:.8rem}.right figcaption{color:var(--blue)}.wrong "
    "figcaption{color:var(--red);font-weight:700}.wrong img{outline:2px solid var(--red)}"
    ".sets{display:grid;gap:16px;grid-template-columns:repeat(auto-fill,minmax(128px,1fr))}"
    ".of3{grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}.sets figure div{display:flex;gap:4px}"
    ".sets span{flex:1}.sets img{box-shadow:0 0 0 1px var(--line)}.sets small{color:var(--soft);font-size:.75rem}"
    ".text{border-left:3px solid var(--line);padding-left:12px;margin:0 0 1.4rem}.text p{margin:.2rem 0}"
    ".text pre,.written{white-space:pre-wrap;overflow-wrap:anywhere}.text pre{padding:.4rem .6rem;margin:.3rem 0}"
    ".tokens{font:13px/1.35 ui-monospace,monospace}.tokens span{display:inline-block;min-width:1ch;padding:0 1px;"
    "margin:0 1px 6px 0;text-align:center;vertical-align:top}.tokens i,.tokens b,.tokens u{display:block;"
    "font-style:normal;font-weight:400;text-decoration:none;white-space:pre}.tokens u,.tokens .ok b,.tokens .left{"
    "color:var(--soft)}.tokens .no b{color:var(--red);font-weight:700;text-decoration:underline 2px}"
    "pre{background:#f6f7f8;padding:1rem;overflow:auto;border-radius:6px;font-size:13px}"
    "@media(max-width:520px){table:not(.rows) th,table:not(.rows) td{display:block;padding-right:0}"
    "table:not(.rows) td{padding-bottom:.5rem}}";

}  // namespace

std::string end_text(const std::string& stopped_by) {
  static const std::map<std::string, std::string> kTexts{
      {"epochs", "all epochs done"}, {"steps", "all steps done"},          {"for", "the time limit was reached"},
      {"interrupt", "interrupted"},  {"end of streams", "the data ended"}, {"not finite", "a value was not finite"},
      {"error", "ended by an error"}};
  const auto text = kTexts.find(stopped_by);
  return text != kTexts.end() ? text->second : "stopped " + stopped_by;
}

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
  html += cards(graph, run) + "<h2>Learning curve</h2>\n<div class=\"wide\">" + curve_svg(run.cycle) + "</div>\n" +
          figures_html(run);
  if (const LayerFigures* layer = counted(run))
    html += "<h2>Confusion matrix</h2>\n<div class=\"wide\">" +
            confusion_svg(layer->table, class_names(graph, layer->layer), confusion_title(run)) + "</div>\n";
  html += samples_html(graph, run.settings) + events_html(run.cycle) + settings_html(graph, run);
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
