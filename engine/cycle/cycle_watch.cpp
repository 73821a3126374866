#include "engine/cycle/cycle_watch.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

// Names each figure: "output.f1" for each layer, and also "f1" for the first layer that has it. `judged`: leave out
// layers that received no rows in the pass.
std::map<std::string, double> named(const std::vector<LayerFigures>& layers, bool judged) {
  std::map<std::string, double> values;
  for (const LayerFigures& layer : layers)
    if (layer.rows > 0 || !judged)
      for (const Figure& f : layer.figures) {
        values.emplace(f.name, f.value);
        values.emplace(layer.layer + "." + f.name, f.value);
      }
  return values;
}

}  // namespace

CycleWatch::CycleWatch(CyclePlan& plan, CycleRecord& record) : plan_(plan), record_(record) {
  // The step itself counts accuracy, and only evaluation builds the table "confusion".
  std::vector<std::string> asked;
  for (const std::string& text : plan.run.metrics)
    if (text != "accuracy" && text != "confusion") asked.push_back(text);
  if (plan.training && !asked.empty())
    layer_metrics_.emplace(plan.graph.registry(), asked, false, false,
                           MetricSpan{plan.window, static_cast<int64_t>(plan.batch)});
}

void CycleWatch::prepare() {
  if (layer_metrics_) {
    layer_metrics_->check_asked();
    for (const auto& [name, value] : named(layer_metrics_->figures(), false)) names_.push_back(name);
    name_windows();
  }
  if (plan_.training && !plan_.graph.validation_streams().empty()) {
    validation_.emplace(plan_.graph, plan_.cycle, plan_.graph.validation_streams(), plan_.run, Purpose::validation);
    for (const std::string& name : validation_->names()) names_.push_back("val." + name);
  }
  for (const std::string& name : names_) record_.metrics().declare(name);
  record_.metrics().keep_held(names_);
  read_windows(true);
}

// Declares "window.output.f1" for each layer, and also "window.f1" for the first layer that has it.
void CycleWatch::name_windows() {
  const auto name = [&](const std::string& text, std::vector<size_t>& of) {
    if (std::find(names_.begin(), names_.end(), text) != names_.end()) return;
    names_.push_back(text);
    of.push_back(record_.metrics().declare(text));
  };
  layer_metrics_->read_windows(
      [&](const std::string& layer, const hx_figure& figure) {
        std::vector<size_t>& of = windows_[layer][figure.name];
        name(std::string("window.") + figure.name, of);
        name("window." + layer + "." + figure.name, of);
      },
      true);
  const auto looks = [&](const Comparison& c) {
    return c.metric.starts_with("window.") && std::find(names_.begin(), names_.end(), c.metric) != names_.end();
  };
  for (const Comparison& c : plan_.settings.until) decides_ = decides_ || looks(c);
  for (const GraphConditional& c : plan_.graph.graph().conditionals)
    decides_ = decides_ || (!c.predicate && c.cycle == plan_.cycle && looks(c.metric));
}

void CycleWatch::read_windows(bool all) {
  if (!layer_metrics_ || windows_.empty()) return;
  layer_metrics_->read_windows(
      [&](const std::string& layer, const hx_figure& figure) {
        const auto& of_layer = windows_.at(layer);
        const auto of = of_layer.find(std::string_view(figure.name));
        if (of == of_layer.end()) return;
        for (const size_t metric : of->second) record_.metrics().put(metric, figure.value);
      },
      all);
}

void CycleWatch::store(RunState& state) {
  if (!layer_metrics_) return;
  state.record.measured_layers = layer_metrics_->state();
  state.record.judged_windows = layer_metrics_->windows();
}

void CycleWatch::restore(const RunState& state) {
  if (!layer_metrics_) return;
  layer_metrics_->restore_windows(state.record.judged_windows);
  if (state.record.epoch_steps > 0) layer_metrics_->restore(state.record.measured_layers);
}

std::vector<std::string> CycleWatch::notes(const RunState& state) const {
  std::vector<std::string> notes;
  if (layer_metrics_)
    for (const auto& [metric, layer, why] : layer_metrics_->begun_anew())
      notes.push_back(fmt::format("metric '{}' of '{}' counts epoch {} from step {} on only: {}", metric, layer,
                                  state.epoch + 1, state.step + 1, why));
  return notes;
}

std::vector<std::string> CycleWatch::names(const std::set<std::string>& measured) const {
  std::vector<std::string> all(measured.begin(), measured.end());
  if (plan_.window > 0)
    for (const std::string& name : measured)
      if (record_.metrics().has("window." + name)) all.push_back("window." + name);
  all.insert(all.end(), names_.begin(), names_.end());
  return all;
}

void CycleWatch::close_epoch(EpochReport& epoch, std::optional<Evaluation> validation) {
  Metrics& metrics = record_.metrics();
  const auto set = [&](const std::string& name, double value) {
    if (std::isfinite(value)) metrics.set(metrics.declare(name), value);
  };
  if (layer_metrics_) {
    for (const auto& [name, value] : named(layer_metrics_->figures(), true)) {
      epoch.figures[name] = value;
      set(name, value);
    }
    layer_metrics_->reset();
  }
  if (!validation) return;
  record_.forget_tables();
  epoch.validation = std::move(validation);
  record_.set_aside(epoch.validation->seconds);
  for (const auto& [name, value] : epoch.validation->all()) set("val." + name, value);
}

}  // namespace harmonics::engine
