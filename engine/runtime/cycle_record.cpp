#include "engine/runtime/cycle_record.hpp"

#include <algorithm>

namespace harmonics {

CycleRecord::CycleRecord(const CyclePlan& plan, CycleReport& report) : plan_(plan), report_(report), loss_metric_(metrics_.declare("loss")) {
  if (!plan_.training) return;
  for (const GraphTap& t : plan_.graph.graph().taps) {
    metrics_.declare(plan_.name_of(t.layer) + ".loss");
    metrics_.declare(plan_.name_of(t.layer) + ".accuracy");
  }
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

std::optional<EpochReport> CycleRecord::close_epoch(uint64_t next, double now) {
  std::optional<EpochReport> closed;
  if (in_epoch_.steps > 0) {
    closed = EpochReport{static_cast<int64_t>(epoch_) + 1, in_epoch_.steps, in_epoch_.samples, now - epoch_start_, in_epoch_.mean_loss(), in_epoch_.accuracy(), report_.learning_rate};
    report_.by_epoch.push_back(*closed);
    epoch_start_ = now;
  }
  epoch_ = next;
  in_epoch_ = {};
  return closed;
}

Progress CycleRecord::progress(double now) const {
  Progress p;
  p.epoch = static_cast<int64_t>(epoch_);
  p.epochs = std::max<int64_t>(plan_.epochs, 0);
  p.step = step_;
  p.samples = samples_;
  p.seconds = now;
  p.samples_per_second = now > 0 ? static_cast<double>(samples_) / now : 0;
  p.loss = metrics_.value(loss_metric_);
  if (accuracy_metric_) p.accuracy = metrics_.value(*accuracy_metric_);
  if (plan_.epochs > 0 && plan_.size > 0) p.fraction = static_cast<double>(samples_) / static_cast<double>(plan_.size * static_cast<uint64_t>(plan_.epochs));
  if (plan_.settings.steps) p.fraction = std::max(p.fraction, static_cast<double>(step_) / static_cast<double>(*plan_.settings.steps));
  if (plan_.settings.seconds) p.fraction = std::max(p.fraction, now / *plan_.settings.seconds);
  return p;
}

void CycleRecord::finish(double now) {
  report_.steps = step_;
  report_.samples = samples_;
  report_.seconds = now;
  report_.samples_per_second = now > 0 ? static_cast<double>(samples_) / now : 0;
  report_.loss = metrics_.value(loss_metric_);
  if (!report_.by_epoch.empty()) report_.accuracy = report_.by_epoch.back().accuracy;
  report_.metrics = metrics_.all();
  report_.curve = curve_.take();
}

}  // namespace harmonics
