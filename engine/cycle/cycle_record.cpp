#include "engine/cycle/cycle_record.hpp"

#include <algorithm>
#include <utility>

namespace harmonics::engine {

CycleRecord::CycleRecord(const CyclePlan& plan, CycleReport& report)
    : plan_(plan), report_(report), loss_metric_(metrics_.declare("loss")), history_(report.by_epoch) {
  if (!plan_.training) return;
  for (const GraphTap& t : plan_.graph.graph().taps) {
    declare_parts(metrics_.declare(plan_.name_of(t.layer) + ".loss"), t.layer);
    metrics_.declare(plan_.name_of(t.layer) + ".accuracy");
  }
  declare_parts(loss_metric_, -1);
  group_.loss.resize(metrics_.parts(loss_metric_));
  in_epoch_.loss.resize(group_.loss.size());
  if (plan_.window > 0) metrics_.keep_windows(plan_.window);
}

// Declares the loss parts of the whole cycle, or of one layer if `layer` is not negative.
void CycleRecord::declare_parts(size_t metric, int layer) {
  const Graph& graph = plan_.graph.graph();
  for (const GraphTap& t : graph.taps)
    if ((layer < 0 || t.layer == layer) && (t.cycle < 0 || t.cycle == plan_.cycle))
      for (const BoundCall& loss : t.losses) metrics_.part(metric, counted_by(graph, t, loss));
}

bool CycleRecord::Sums::counts() const {
  return std::any_of(loss.begin(), loss.end(), [](const StepSums& part) { return part.weight > 0; });
}

double CycleRecord::Sums::mean_loss() const {
  double mean = 0;
  for (const StepSums& part : loss) mean += StepSums{part.sum, part.weight, part.active, measured}.mean();
  return mean;
}

void CycleRecord::Sums::add(const Sums& group) {
  if (group.counts()) {
    for (size_t i = 0; i < loss.size(); ++i) loss[i].add(group.loss[i]);
    measured += group.measured;
  }
  correct += group.correct;
  judged += group.judged;
  for (const auto& [name, figure] : group.figures) figures[name].add(figure);
}

void CycleRecord::Sums::clear() {
  batches = steps = samples = 0;
  std::fill(loss.begin(), loss.end(), StepSums());
  measured = correct = judged = 0;
  for (auto& [name, figure] : figures) figure = {};
}

void CycleRecord::count_batch(const StepProgram& program, int64_t samples) {
  samples_ += samples;
  in_epoch_.samples += samples;
  group_.samples += samples;
  ++group_.batches;
  measure(program, static_cast<double>(samples));
}

void CycleRecord::measure(const StepProgram& p, double samples) {
  const CompiledStep& program = *p.step;
  if (!program.loss()) return;
  add(loss_metric_, p.parts, program.parts(), samples);
  for (size_t i = 0; i < p.parts.size(); ++i) {
    const double weight = program.parts()[i].weight(samples);
    group_.loss[p.parts[i]].add({weight > 0 ? *program.parts()[i].value * weight : 0, weight, samples, 0});
  }
  group_.measured += samples;
  bool first = true;
  for (size_t i = 0; i < p.loss_metrics.size(); ++i) {
    add(p.loss_metrics[i], p.layer_parts[i], program.layer_parts(i), samples);
    const BatchMean& correct = program.correct(i);
    if (!correct.value) continue;
    const double share = add_accuracy(p.accuracy_metrics[i], correct, samples), weight = correct.weight(samples);
    if (!std::exchange(first, false)) continue;
    accuracy_metric_ = p.accuracy_metrics[i];
    group_.correct += share * weight;
    group_.judged += weight;
  }
  for (const FigureMetrics& figure : p.figures) {
    const float value = *program.figures(figure.loss)[figure.figure].value;
    for (const size_t metric : figure.shown) metrics_.add(metric, value, samples);
    for (const std::string& name : figure.names) group_.figures[name].add({value * samples, samples, samples, samples});
  }
}

void CycleRecord::add(size_t metric, const std::vector<size_t>& parts, const std::vector<BatchMean>& means,
                      double samples) {
  metrics_.begin_batch(metric, samples);
  for (size_t i = 0; i < parts.size(); ++i)
    metrics_.add(metric, parts[i], *means[i].value, means[i].weight(samples), samples);
}

// Adds and returns the share of counted outputs that are correct; 0 if none is counted.
double CycleRecord::add_accuracy(size_t metric, const BatchMean& correct, double samples) {
  const double counted = correct.counted ? static_cast<double>(*correct.counted) : correct.places;
  const double share = counted > 0 ? *correct.value / counted : 0;
  metrics_.begin_batch(metric, samples);
  metrics_.add(metric, 0, share, correct.weight(samples), samples);
  return share;
}

void CycleRecord::end_step(double now) {
  ++step_;
  whole_batches_ = batches_;
  ++in_epoch_.steps;
  now_ = now;
  metrics_.end_step();
  in_epoch_.add(group_);
  if (group_.counts()) curve_.add(step_, now_, group_.mean_loss(), group_.accuracy());
  group_.clear();
}

void CycleRecord::drop_step() {
  batches_ = whole_batches_;
  samples_ -= group_.samples;
  in_epoch_.samples -= group_.samples;
  metrics_.drop_step();
  group_.clear();
}

EpochReport* CycleRecord::close_epoch(uint64_t next, double now) {
  EpochReport* closed = nullptr;
  if (in_epoch_.steps > 0) {
    // Parts of a stream that is read once are numbered, since it has one pass.
    const int64_t number = plan_.once ? history_.closed() + 1 : static_cast<int64_t>(epoch_) + 1;
    closed = &history_.add(EpochReport{number, in_epoch_.steps, in_epoch_.samples, now - epoch_start_,
                                       in_epoch_.mean_loss(), in_epoch_.accuracy(), report_.learning_rate, step_,
                                       accuracy_metric_ ? metrics_.name(*accuracy_metric_) : std::string()});
    closed->waited = epoch_waited_;
    for (const auto& [name, figure] : in_epoch_.figures)
      if (figure.weight > 0) closed->figures[name] = figure.mean();
    epoch_start_ = now;
  }
  epoch_ = next;
  epoch_waited_ = 0;
  in_epoch_.clear();
  return closed;
}

void CycleRecord::forget_tables() {
  for (EpochReport& e : report_.by_epoch)
    if (e.validation)
      for (LayerFigures& layer : e.validation->layers) layer.table = {};
}

void CycleRecord::store(RunState& s) const {
  s.step = step_;
  s.batches = whole_batches_;
  s.samples = samples_ - group_.samples;
  s.seconds = now_;
  s.learning_rate = report_.learning_rate;
  s.metrics = metrics_.all();
  RecordState& r = s.record;
  r.epoch_steps = in_epoch_.steps;
  r.epoch_samples = in_epoch_.samples - group_.samples;
  for (size_t i = 0; i < in_epoch_.loss.size(); ++i)
    r.epoch_loss[metrics_.part_key(loss_metric_, i)] = in_epoch_.loss[i];
  for (const auto& [name, figure] : in_epoch_.figures)
    if (figure.weight > 0) r.epoch_figures[name] = figure;
  r.epoch_measured = in_epoch_.measured;
  r.epoch_correct = in_epoch_.correct;
  r.epoch_judged = in_epoch_.judged;
  r.epoch_start = epoch_start_;
  r.aside = aside_;
  r.accuracy_metric = accuracy_metric_ ? metrics_.name(*accuracy_metric_) : "";
  r.windows = metrics_.windows();
  r.held = metrics_.held();
  r.curve = curve_.state();
  r.by_epoch = report_.by_epoch;
  r.closed_epochs = history_.closed();
  r.epoch_stride = history_.stride();
}

void CycleRecord::restore(const RunState& s) {
  step_ = s.step;
  batches_ = whole_batches_ = s.batches;
  samples_ = s.samples;
  epoch_ = s.epoch;
  now_ = before_ = s.seconds;
  report_.learning_rate = s.learning_rate;
  const RecordState& r = s.record;
  in_epoch_.clear();
  in_epoch_.steps = r.epoch_steps;
  in_epoch_.samples = r.epoch_samples;
  in_epoch_.measured = r.epoch_measured;
  in_epoch_.correct = r.epoch_correct;
  in_epoch_.judged = r.epoch_judged;
  for (size_t i = 0; i < in_epoch_.loss.size(); ++i)
    if (const auto part = r.epoch_loss.find(metrics_.part_key(loss_metric_, i)); part != r.epoch_loss.end())
      in_epoch_.loss[i] = part->second;
  in_epoch_.figures = r.epoch_figures;
  epoch_start_ = r.epoch_start;
  aside_ = r.aside;
  metrics_.restore(r.windows, r.held);
  if (const auto norm = s.metrics.find(kGradientNorm); norm != s.metrics.end()) put_gradient_norm(norm->second);
  if (!r.accuracy_metric.empty()) accuracy_metric_ = metrics_.declare(r.accuracy_metric);
  curve_.restore(r.curve);
  history_.restore(r.by_epoch, r.closed_epochs, r.epoch_stride);
}

Progress CycleRecord::progress(double now, double later) const {
  Progress p;
  p.epoch = static_cast<int64_t>(epoch_);
  p.epochs = std::max<int64_t>(plan_.epochs, 0);
  p.step = step_;
  p.samples = samples_;
  p.seconds = now;
  p.samples_per_second = samples_per_second(now + later);
  p.loss = metrics_.value(loss_metric_);
  if (accuracy_metric_) p.accuracy = metrics_.value(*accuracy_metric_);
  if (norm_metric_) p.gradient_norm = metrics_.value(*norm_metric_);
  if (plan_.window > 0) {
    p.window = metrics_.windowed();
    p.window_loss = metrics_.window_value(loss_metric_);
    if (accuracy_metric_) p.window_accuracy = metrics_.window_value(*accuracy_metric_);
  }
  if (plan_.epochs > 0 && plan_.size > 0)
    p.fraction = static_cast<double>(samples_) / static_cast<double>(plan_.size * static_cast<uint64_t>(plan_.epochs));
  if (plan_.settings.steps)
    p.fraction = std::max(p.fraction, static_cast<double>(step_) / static_cast<double>(*plan_.settings.steps));
  if (plan_.settings.seconds) p.fraction = std::max(p.fraction, now / *plan_.settings.seconds);
  return p;
}

StepReport CycleRecord::step_report(int64_t steps) const {
  return {static_cast<int64_t>(epoch_) + 1,
          step_,
          samples_,
          now_,
          samples_per_second(now_),
          report_.learning_rate,
          metrics_.recent(steps)};
}

void CycleRecord::finish(double now, double later) {
  report_.steps = step_;
  report_.samples = samples_;
  report_.seconds = now;
  report_.samples_per_second = samples_per_second(now + later);
  report_.waited = now > before_ ? std::min(waited_ / (now - before_), 1.0) : 0;
  report_.loss = metrics_.value(loss_metric_);
  if (!report_.by_epoch.empty()) report_.accuracy = report_.by_epoch.back().accuracy;
  report_.metrics = metrics_.all();
  report_.curve = curve_.take();
}

}  // namespace harmonics::engine
