#include "engine/cycle/cycle_rate.hpp"

#include <cmath>

#include <fmt/core.h>

#include "engine/cycle/run_control.hpp"

namespace harmonics::engine {

void CycleRate::prepare() {
  const CyclePlan& plan = cycle_.plan;
  if (!plan.training) return;
  schedule_.emplace(plan.settings.schedule, plan.settings.optimizer.lr, plan.horizon());
  if (const auto note = schedule_->note()) cycle_.report.notes.push_back(*note);
}

// A different training configuration has its own learning rate, so a rate set from outside is dropped.
std::string CycleRate::keep(bool same_training) {
  if (!set_) return "";
  const double rate = *set_;
  if (same_training)
    return fmt::format(
        "the learning rate is {:g}, as it was set by request; 'harmonics ctl PATH lr schedule' returns to the schedule",
        rate);
  set_.reset();
  return fmt::format("the learning rate of {:g} that was set by request is dropped: the training settings differ",
                     rate);
}

std::optional<double> CycleRate::set() const {
  if (!controlled_) return set_;
  const double set = cycle_.hooks.control->learning_rate();
  return std::isnan(set) ? std::nullopt : std::optional(set);
}

float CycleRate::next() {
  const std::optional<double> rate = set();
  const CycleRecord& record = cycle_.record;
  const auto& seconds = cycle_.plan.settings.seconds;
  double& reported = cycle_.report.learning_rate;
  if (schedule_) reported = rate ? *rate : schedule_->at(record.step(), seconds ? record.now() / *seconds : 0);
  if (rate != told_) {
    told_ = rate;
    cycle_.event("learning_rate", rate ? fmt::format("the learning rate was set to {:g}", *rate)
                                       : "the learning rate follows the schedule again");
  }
  return static_cast<float>(reported);
}

}  // namespace harmonics::engine
