#include "engine/runtime/cycle_record.hpp"

#include <algorithm>

namespace harmonics {

CycleRecord::CycleRecord(const CyclePlan& plan, CycleReport& report) : plan_(plan), report_(report), loss_metric_(metrics_.declare("loss")) {
  if (!plan_.training) return;
  for (const GraphTap& t : plan_.graph.graph().taps) {
    metrics_.declare(plan_.name_of(t.layer) + ".loss");
    metrics_.declare(plan_.name_of(t.layer) + ".accuracy");
  }
  if (plan_.window > 0) metrics_.keep_windows(plan_.window);
}

void CycleRecord::count_batch(const StepProgram& program, int64_t samples) {
  samples_ += samples;
  in_epoch_.samples += samples;
  group_.samples += samples;
  ++group_.batches;
  measure(program, static_cast<double>(samples));
}

void CycleRecord::measure(const StepProgram& p, double count) {
  const CompiledStep& program = *p.step;
  if (!program.loss()) return;
  const double loss = *program.loss();
  metrics_.add(loss_metric_, loss, count);
  double accuracy = -1;
  const auto& losses = program.lowered().losses;
  for (size_t i = 0; i < losses.size(); ++i) {
    metrics_.add(p.loss_metrics[i], *program.layer_loss(i), count);
    if (const float* correct = program.correct(i)) {
      const double right = *correct / static_cast<double>(losses[i].counted);
      metrics_.add(p.accuracy_metrics[i], right, count);
      if (accuracy < 0) accuracy = right, accuracy_metric_ = p.accuracy_metrics[i];
    }
  }
  group_.loss += loss * count;
  group_.measured += count;
  if (accuracy >= 0) {
    group_.correct += accuracy * count;
    group_.judged += count;
  }
}

void CycleRecord::end_step(double now) {
  ++step_;
  whole_batches_ = batches_;
  ++in_epoch_.steps;
  now_ = now;
  metrics_.end_step();
  in_epoch_.loss += group_.loss;
  in_epoch_.measured += group_.measured;
  in_epoch_.correct += group_.correct;
  in_epoch_.judged += group_.judged;
  if (group_.measured > 0) curve_.add(step_, now_, group_.mean_loss(), group_.accuracy());
  group_ = {};
}

void CycleRecord::drop_step() {
  batches_ = whole_batches_;
  samples_ -= group_.samples;
  in_epoch_.samples -= group_.samples;
  group_ = {};
}

EpochReport* CycleRecord::close_epoch(uint64_t next, double now) {
  EpochReport* closed = nullptr;
  if (in_epoch_.steps > 0) {
    closed = &report_.by_epoch.emplace_back(EpochReport{static_cast<int64_t>(epoch_) + 1, in_epoch_.steps, in_epoch_.samples, now - epoch_start_, in_epoch_.mean_loss(), in_epoch_.accuracy(), report_.learning_rate, step_, accuracy_metric_ ? metrics_.name(*accuracy_metric_) : std::string()});
    epoch_start_ = now;
  }
  epoch_ = next;
  in_epoch_ = {};
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
  r.epoch_loss = in_epoch_.loss;
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
}

void CycleRecord::restore(const RunState& s) {
  step_ = s.step;
  batches_ = whole_batches_ = s.batches;
  samples_ = s.samples;
  epoch_ = s.epoch;
  now_ = s.seconds;
  report_.learning_rate = s.learning_rate;
  const RecordState& r = s.record;
  in_epoch_ = {0, r.epoch_steps, r.epoch_samples, r.epoch_loss, r.epoch_measured, r.epoch_correct, r.epoch_judged};
  epoch_start_ = r.epoch_start;
  aside_ = r.aside;
  metrics_.restore(r.windows, r.held);
  if (!r.accuracy_metric.empty()) accuracy_metric_ = metrics_.declare(r.accuracy_metric);
  curve_.restore(r.curve);
  report_.by_epoch = r.by_epoch;
}

Progress CycleRecord::progress(double now) const {
  Progress p;
  p.epoch = static_cast<int64_t>(epoch_);
  p.epochs = std::max<int64_t>(plan_.epochs, 0);
  p.step = step_;
  p.samples = samples_;
  p.seconds = now;
  p.samples_per_second = samples_per_second(now);
  p.loss = metrics_.value(loss_metric_);
  if (accuracy_metric_) p.accuracy = metrics_.value(*accuracy_metric_);
  if (plan_.window > 0) {
    p.window = metrics_.windowed();
    p.window_loss = metrics_.window_value(loss_metric_);
    if (accuracy_metric_) p.window_accuracy = metrics_.window_value(*accuracy_metric_);
  }
  if (plan_.epochs > 0 && plan_.size > 0) p.fraction = static_cast<double>(samples_) / static_cast<double>(plan_.size * static_cast<uint64_t>(plan_.epochs));
  if (plan_.settings.steps) p.fraction = std::max(p.fraction, static_cast<double>(step_) / static_cast<double>(*plan_.settings.steps));
  if (plan_.settings.seconds) p.fraction = std::max(p.fraction, now / *plan_.settings.seconds);
  return p;
}

StepReport CycleRecord::step_report() const {
  return {static_cast<int64_t>(epoch_) + 1, step_, samples_, now_, samples_per_second(now_), report_.learning_rate, metrics_.moving()};
}

void CycleRecord::finish(double now) {
  report_.steps = step_;
  report_.samples = samples_;
  report_.seconds = now;
  report_.samples_per_second = samples_per_second(now);
  report_.loss = metrics_.value(loss_metric_);
  if (!report_.by_epoch.empty()) report_.accuracy = report_.by_epoch.back().accuracy;
  report_.metrics = metrics_.all();
  report_.curve = curve_.take();
}

}  // namespace harmonics
