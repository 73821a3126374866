#include "engine/runtime/cycle_watch.hpp"

#include <cmath>

#include <fmt/core.h>

namespace harmonics {

namespace {

// "f1" of the first layer that has it, and "output.f1" of each.
std::map<std::string, double> named(const std::vector<LayerFigures>& layers) {
  std::map<std::string, double> values;
  for (const LayerFigures& layer : layers)
    for (const Figure& f : layer.figures) {
      values.emplace(f.name, f.value);
      values.emplace(layer.layer + "." + f.name, f.value);
    }
  return values;
}

}  // namespace

CycleWatch::CycleWatch(CyclePlan& plan, CycleRecord& record) : plan_(plan), record_(record) {
  // Accuracy is counted by the step itself.
  std::vector<std::string> asked;
  for (const std::string& text : plan.run.metrics)
    if (text != "accuracy") asked.push_back(text);
  if (plan.training && !asked.empty()) judge_.emplace(plan.graph.registry(), asked, false, false);
}

void CycleWatch::prepare() {
  if (judge_) {
    judge_->check_asked();
    for (const auto& [name, value] : named(judge_->figures())) names_.push_back(name);
  }
  if (plan_.training && !plan_.graph.validation_streams().empty()) {
    validation_.emplace(plan_.graph, plan_.cycle, plan_.graph.validation_streams(), plan_.run, Purpose::validation);
    for (const std::string& name : validation_->names()) names_.push_back("val." + name);
  }
  for (const std::string& name : names_) record_.metrics().declare(name);
}

std::vector<std::string> CycleWatch::names(const std::set<std::string>& measured) const {
  std::vector<std::string> all(measured.begin(), measured.end());
  all.insert(all.end(), names_.begin(), names_.end());
  return all;
}

void CycleWatch::close_epoch(EpochReport& epoch, bool stopped) {
  Metrics& metrics = record_.metrics();
  const auto set = [&](const std::string& name, double value) {
    if (std::isfinite(value)) metrics.set(metrics.declare(name), value);
  };
  if (judge_) {
    epoch.figures = named(judge_->figures());
    for (const auto& [name, value] : epoch.figures) set(name, value);
    judge_->reset();
  }
  if (!validation_ || stopped) return;
  epoch.validation = validation_->run();
  record_.set_aside(epoch.validation->seconds);
  for (const auto& [name, value] : epoch.validation->all()) set("val." + name, value);
}

}  // namespace harmonics
