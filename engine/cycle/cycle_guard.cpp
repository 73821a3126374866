#include "engine/cycle/cycle_guard.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/file.hpp"
#include "engine/checkpoint/checkpointer.hpp"
#include "engine/model/sealed_file.hpp"

namespace harmonics::engine {

CycleGuard::CycleGuard(CycleContext& cycle, FiniteWeights& weights)
    : cycle_(cycle),
      weights_(weights),
      settings_(cycle.plan.training && cycle.plan.run.guard ? &*cycle.plan.run.guard : nullptr),
      loss_(cycle.record.metrics().declare("loss")) {
  if (settings_ && settings_->returns && !cycle.hooks.checkpoints)
    throw Error(ErrorKind::Usage, "the loss guard returns to checkpoints, but this run writes none", {},
                {"write checkpoints: --checkpoint DIR, or end the run: then=stop"});
}

float CycleGuard::most() const {
  constexpr float kAny = std::numeric_limits<float>::infinity();
  if (!settings_ || !(settings_->deviations > 0)) return kAny;
  const Metrics::Spread before = cycle_.record.metrics().spread(loss_);
  if (before.steps < kLeastSteps) return kAny;
  const double batches = static_cast<double>(cycle_.plan.settings.accumulate),
               deviation = std::max(before.deviation, kLeastDeviation * std::abs(before.mean));
  return static_cast<float>(before.mean + settings_->deviations * deviation * std::sqrt(batches));
}

bool CycleGuard::skips(const Slot& slot, float loss) {
  if (!settings_) return false;
  const bool again = cycle_.hooks.repeats_until.has_value();  // repeated steps were reported before
  ++in_a_row_;
  const bool finite = std::isfinite(loss), enough = in_a_row_ >= settings_->patience;
  const std::string saved = again ? "" : save(slot, loss),
                    at = saved.empty() ? "" : fmt::format("; the batch is in {}", saved);
  const std::string value = std::isnan(loss) ? "nan" : fmt::format("{:.4g}", loss);  // omits the sign of a NaN
  std::string what = fmt::format("the loss of a batch after step {} is {}", cycle_.record.step(), value);
  if (finite) {
    const Metrics::Spread before = cycle_.record.metrics().spread(loss_);
    what += fmt::format(", the mean of the {} steps before {:.4g}, their deviation {:.2g}", before.steps, before.mean,
                        before.deviation);
  }
  if (enough && !can_return()) {
    if (!finite) {
      if (!at.empty()) cycle_.note(what + at);
      return false;
    }
    Error e(ErrorKind::Diverged,
            in_a_row_ > 1 ? fmt::format("{}: batch {} in a row was skipped", what, in_a_row_) : what);
    if (!saved.empty()) e.note("note: the batch is in " + saved);
    throw e.note("lower the learning rate, look at the batch, or allow more: patience=N");
  }
  ++cycle_.report.skipped;
  if (!again) cycle_.note(fmt::format("skipped: {}{}", what, at));
  if (!enough) return true;
  returns_to_ = cycle_.hooks.checkpoints->last();
  in_a_row_ = 0;
  if (cycle_.record.gathered() > 0) return true;  // the rest of the group runs first
  cycle_.at.index = slot.end;
  cycle_.at.reads = slot.reads;
  return_to_checkpoint();
  return true;
}

// Saves each stream as a tensor whose first axis counts the samples. Returns the path, or "" if nothing was saved.
std::string CycleGuard::save(const Slot& slot, float loss) {
  if (settings_->folder.empty()) return "";
  const CyclePlan& plan = cycle_.plan;
  TensorFile file;
  file.metadata = {{"harmonics.batch_loss", fmt::format("{:g}", loss)},
                   {"harmonics.batch_after_step", std::to_string(cycle_.record.step())}};
  for (size_t i = 0; i < plan.producers.size(); ++i) {
    const StreamType& stream = plan.graph.types().at(plan.producers[i]);
    Shape shape{static_cast<int64_t>(slot.count)};
    for (uint32_t axis = 0; axis < stream.sample.rank(); ++axis) shape.push_back(stream.sample[axis]);
    const TensorType type{stream.dtype, shape};
    file.tensors.emplace(plan.name_of(plan.producers[i]), view_of(type, const_cast<void*>(slot.pointers[i])));
  }
  const std::string path =
      fmt::format("{}/epoch-{}-sample-{}.safetensors", settings_->folder, slot.epoch + 1, slot.end);
  try {
    if (const int failed = make_directories(settings_->folder); failed != 0)
      throw Error(ErrorKind::Output, fmt::format("cannot create '{}': {}", settings_->folder, std::strerror(failed)));
    save_sealed(std::move(file), path);
  } catch (const Error& e) {
    cycle_.note(fmt::format("a skipped batch was not saved: {}", e.what()));
    return "";
  }
  return path;
}

// Returns whether there is a checkpoint to return to. The one of the last return does not count: it led here again.
bool CycleGuard::can_return() {
  if (!settings_->returns) return false;
  cycle_.hooks.checkpoints->wait();
  const std::string& last = cycle_.hooks.checkpoints->last();
  return !last.empty() && last != returned_to_;
}

// Steps and data continue from here. The copy of the weights is renewed, because repeating the steps since the old copy
// would not lead to these weights.
void CycleGuard::return_to_checkpoint() {
  returned_to_ = std::exchange(returns_to_, "");
  const Checkpoint checkpoint = cycle_.hooks.checkpoints->read_last();
  clear_moments(cycle_.plan.graph.store());
  cycle_.plan.graph.restore(checkpoint.file);
  weights_.keep();
  const std::string text = fmt::format("restored the weights and moments of {} after {}", returned_to_,
                                       quantity(settings_->patience, "skipped batch", "skipped batches"));
  cycle_.event("returned", text);
  cycle_.note(text);
}

}  // namespace harmonics::engine
