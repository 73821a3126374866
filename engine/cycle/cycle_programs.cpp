#include "engine/cycle/cycle_programs.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/work.hpp"

namespace harmonics::engine {

// Returns whether the gradient norm is reported. On a device with its own memory every step would wait for it.
bool CyclePrograms::shows_norm(const CyclePlan& plan) {
  if (!plan.training || !(plan.settings.clip > 0)) return false;
  const KernelSource kernels(plan.run.device, plan.graph.registry());
  return kernels.is_reference() || !has_own_memory(*kernels.device());
}

double CyclePrograms::products_of_sample() {
  if (!chosen_ || chosen_->by_batch.empty()) return 0;
  const auto& [batch, program] = *chosen_->by_batch.rbegin();
  if (counted_ == program.step.get()) return products_;
  const Program& plan = program.step->executable().program();
  double sum = 0;
  for (const Node& node : plan.nodes) sum += work_of(plan, node).products;
  counted_ = program.step.get();
  return products_ = sum / static_cast<double>(batch);
}

std::vector<int> CyclePrograms::conditionals() const {
  std::vector<int> here;
  const auto& all = plan_.graph.graph().conditionals;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].cycle == plan_.cycle) here.push_back(static_cast<int>(i));
  return here;
}

void CyclePrograms::trace() { trace_branches(conditionals()); }

void CyclePrograms::compile_first(const RunCounts& counts) {
  const std::vector<int> here = conditionals();
  if (!here.empty()) trace_branches(here);
  choose_branches(counts);
  const uint64_t last = plan_.size % plan_.batch;
  of_batch(static_cast<int64_t>(plan_.batch));
  if (last != 0 && plan_.epochs != 0 && here.empty()) of_batch(static_cast<int64_t>(last));
}

void CyclePrograms::renew(const RunCounts& counts) {
  by_branches_.clear();
  chosen_by_.clear();
  kernels_of_.clear();
  chosen_ = nullptr;
  counted_ = nullptr;
  choose_branches(counts);
  of_batch(static_cast<int64_t>(plan_.batch));
}

void CyclePrograms::trace_branches(const std::vector<int>& conditionals) {
  constexpr size_t kTraced = 6;
  const size_t traced = std::min(conditionals.size(), kTraced);
  for (size_t choice = 0; choice < size_t{1} << traced; ++choice) {
    branches_.clear();
    for (size_t i = 0; i < conditionals.size(); ++i)
      branches_.insert(2 * conditionals[i] + (i < traced && (choice >> i & 1) ? 0 : 1));
    learn(plan_.graph.lower(options(static_cast<int64_t>(plan_.batch))));
  }
}

// Records what a program measures and returns.
void CyclePrograms::learn(const Lowered& lowered) {
  if (layer_metrics_) layer_metrics_->open_layers(lowered);
  for (const Node* leaf : lowered.program.leaves(Op::parameter)) {
    used_.insert(leaf->callee);
    reads_stored_types_ = reads_stored_types_ || is_stored(lowered.program.type(leaf->outputs.at(0)).dtype);
  }
  for (const TrainedParameter& parameter : lowered.trained) trained_.insert(parameter.name);
  for (const NamedValue& update : lowered.program.updates) changed_.insert(update.name);
  if (lowered.program.output("loss")) measured_.insert("loss");
  for (const LossInfo& info : lowered.losses) {
    measured_.insert(info.name + ".loss");
    if (info.accuracy) measured_.insert(info.name + ".accuracy");
  }
  for (const FigureMetrics& figure : figures_of(lowered)) measured_.insert(figure.names.begin(), figure.names.end());
  for (size_t i = 0; i < plan_.wanted.size(); ++i) {
    const auto it = lowered.values.find(plan_.wanted[i]);
    if (it == lowered.values.end()) continue;
    const TensorType type = lowered.program.values[lowered.program.output(it->second)->value].type;
    const TensorType sample{type.dtype, type.shape.from(1)};
    if (result_types_[i] && *result_types_[i] != sample)
      throw Error(ErrorKind::Shape, fmt::format("'{}' receives {} in one branch and {} in another",
                                                plan_.name_of(plan_.wanted[i]), result_types_[i]->str(), sample.str()));
    result_types_[i] = sample;
  }
}

std::vector<FigureMetrics> CyclePrograms::figures_of(const Lowered& lowered) {
  std::vector<FigureMetrics> all;
  std::set<std::string> shown;
  for (size_t i = 0; i < lowered.losses.size(); ++i)
    for (size_t k = 0; k < lowered.losses[i].figures.size(); ++k) {
      const std::string& name = lowered.losses[i].figures[k].name;
      FigureMetrics& one = all.emplace_back(FigureMetrics{i, k, {}, {lowered.losses[i].name + "." + name}});
      if (shown.insert(name).second) one.names.push_back(name);
      for (const std::string& metric : one.names) one.shown.push_back(metrics_.declare(metric));
    }
  return all;
}

LoweringOptions CyclePrograms::options(int64_t batch) const {
  LoweringOptions o;
  o.mode = plan_.training ? Mode::train : Mode::infer;
  o.cycle = plan_.cycle;
  o.batch = batch;
  o.seed = plan_.settings.seed;
  o.device = plan_.run;
  o.branches = branches_;
  static_cast<UpdateSettings&>(o) = plan_.settings;
  o.shows_norm = shows_norm_;
  if (gathers()) o.accumulate = static_cast<double>(batch) / static_cast<double>(plan_.batch);
  o.wanted = plan_.wanted;
  o.metric_inputs = layer_metrics_ != nullptr;
  return o;
}

namespace {

std::map<std::string, std::string> listed(const std::map<std::string, std::set<std::string>>& sets) {
  std::map<std::string, std::string> all;
  for (const auto& [name, members] : sets)
    for (const std::string& member : members) all[name] += (all[name].empty() ? "" : ", ") + member;
  return all;
}

}  // namespace

std::map<std::string, std::string> CyclePrograms::implementations() const { return listed(chosen_by_); }
std::map<std::string, std::string> CyclePrograms::kernels() const { return listed(kernels_of_); }

std::string CyclePrograms::hosted() const {
  if (!chosen_ || chosen_->by_batch.empty()) return "";
  const Executable& program = chosen_->by_batch.rbegin()->second.step->executable();
  std::set<std::string> what;
  size_t n = 0;
  for (const PlanStep& s : program.steps())
    if (s.on_host) ++n, what.insert(s.what);
  if (n == 0) return "";
  std::string names;
  for (const std::string& name : what) names += (names.empty() ? "" : ", ") + name;
  return fmt::format("device '{}' has no kernel for {} of {} steps, which the CPU computes, with copies: {}",
                     plan_.run.device, n, program.steps().size(), names);
}

void CyclePrograms::choose_branches(const RunCounts& counts) {
  const auto& conditionals = plan_.graph.graph().conditionals;
  bool same = chosen_ != nullptr;
  held_.resize(conditionals.size());
  for (size_t i = 0; i < conditionals.size(); ++i) {
    if (conditionals[i].cycle != plan_.cycle) continue;
    const char holds =
        conditionals[i].predicate ? predicates_.holds(i, counts, metrics_) : metrics_.holds(conditionals[i].metric);
    same = same && holds == held_[i];
    held_[i] = holds;
  }
  if (same) return;
  branches_.clear();
  for (size_t i = 0; i < conditionals.size(); ++i)
    if (conditionals[i].cycle == plan_.cycle) branches_.insert(static_cast<int>(2 * i + (held_[i] ? 0 : 1)));
  chosen_ = &by_branches_[branches_];
}

StepProgram& CyclePrograms::of_batch(int64_t count) {
  const auto it = chosen_->by_batch.find(count);
  return it != chosen_->by_batch.end() ? it->second : chosen_->by_batch.emplace(count, compile(count)).first->second;
}

const float* CyclePrograms::norm_in(const CompiledStep& step) {
  if (!step.executable().program().output(kGradientNorm)) return nullptr;
  metrics_.declare(kGradientNorm);
  measured_.insert(kGradientNorm);
  return step.executable().output(kGradientNorm).data<float>();
}

StepProgram CyclePrograms::compile(int64_t batch) {
  const CompileOptions c = plan_.graph.compile_options(plan_.run, plan_.training);
  ParameterStore& store = plan_.graph.store();
  StepProgram p;
  p.step = std::make_unique<CompiledStep>(plan_.graph.lower(options(batch)), store, plan_.executor, c);
  const Lowered& lowered = p.step->lowered();
  learn(lowered);
  for (const std::vector<Selected>* all : {&p.step->executable().selected(), &lowered.opened})
    for (const Selected& s : *all) chosen_by_[s.op].insert(s.winner);
  for (const PlanStep& s : p.step->executable().steps()) kernels_of_[s.what].insert(s.kernel);
  const auto parts_of = [&](size_t metric, const std::vector<LossPart>& parts) {
    std::vector<size_t> of_metric;
    for (const LossPart& part : parts)
      of_metric.push_back(
          metrics_.part(metric, part.counted < 0 ? "" : lowered.counted[static_cast<size_t>(part.counted)].key));
    return of_metric;
  };
  p.parts = parts_of(metrics_.declare("loss"), lowered.parts);
  if (gathers() && !chosen_->update && !lowered.trained.empty()) {
    Lowered update;
    update.program =
        accumulated_update(plan_.graph.graph().name, store, options(batch), lowered.trained, lowered.parts.size());
    chosen_->update = std::make_unique<CompiledStep>(std::move(update), store, plan_.executor, c);
    chosen_->norm = norm_in(*chosen_->update);
    chosen_->gathered_parts = p.parts;
  }
  p.gradient_norm = norm_in(*p.step);
  for (const LossInfo& info : lowered.losses) {
    p.loss_metrics.push_back(metrics_.declare(info.name + ".loss"));
    p.layer_parts.push_back(parts_of(p.loss_metrics.back(), info.parts));
    p.accuracy_metrics.push_back(metrics_.declare(info.name + ".accuracy"));
  }
  p.figures = figures_of(lowered);
  if (layer_metrics_) p.metric_addresses = layer_metrics_->outputs_of(*p.step);
  for (int n : plan_.wanted) {
    const auto value = lowered.values.find(n);
    p.results.push_back(value == lowered.values.end() ? nullptr : &p.step->executable().output(value->second));
  }
  return p;
}

}  // namespace harmonics::engine
