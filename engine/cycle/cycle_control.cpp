#include "engine/cycle/cycle_control.hpp"

#include <algorithm>
#include <iterator>

namespace harmonics::engine {

namespace {

constexpr double kBetweenLooks = 0.25;  // seconds between two readings of the window metrics

void look_at(const Source& source, const JoinCounts& join, StreamStatus& status) {
  const std::optional<StreamHealth> health = source.health();
  if (!health) return;
  constexpr const char* kWords[] = {"waiting", "receiving", "ended", "failed"};
  status.state = kWords[std::min(static_cast<size_t>(health->state), std::size(kWords) - 1)];
  StreamStatus::Live& live = status.of_live.emplace();
  live.queued_samples = health->queued_samples + join.waiting;
  live.queued_bytes = health->queued_bytes + join.waiting * source.sample_bytes();
  live.window_bytes = health->window_bytes;
  live.senders = health->senders;
  live.connected = health->connected;
  live.lost = health->lost;
  live.duplicates = health->duplicates;
  live.refused = health->refused;
  live.resent = health->resent;
  live.dropped = join.dropped;
  live.unpaired = join.unpaired;
  live.late = join.late;
  live.filled = join.filled;
  live.idle_seconds = health->idle_seconds;
  live.last_error = health->last_error;
  const bool gone = health->state == StreamHealth::State::Receiving && health->senders > 0 && health->connected == 0;
  status.health = health->state == StreamHealth::State::Failed                ? Health::failed
                  : health->lost > 0 || join.unpaired + join.late > 0 || gone ? Health::degraded
                                                                              : Health::ok;
}

RunRow row_of(const EpochReport& epoch, const Progress& progress) {
  RunRow row{0,
             epoch.epoch,
             epoch.step,
             progress.samples,
             progress.seconds,
             progress.samples_per_second,
             epoch.learning_rate,
             epoch.figures};
  row.metrics["loss"] = epoch.loss;
  if (epoch.accuracy >= 0) row.metrics[epoch.accuracy_name] = epoch.accuracy;
  if (epoch.validation)
    for (const auto& [name, value] : epoch.validation->all()) row.metrics["val." + name] = value;
  return row;
}

}  // namespace

std::vector<StreamProbe> CycleControl::probes() const {
  CyclePlan& plan = cycle_.plan;
  // A probe may be called after the reader has moved to the next cycle.
  const JointReader* const reader = plan.reader.get();
  std::vector<StreamProbe> all;
  for (size_t i = 0; i < plan.producers.size(); ++i) {
    const Source& source = plan.graph.streams().source(plan.producers[i]);
    all.push_back({plan.name_of(plan.producers[i]), source.info().live,
                   reader->bytes(i) / std::max<size_t>(source.sample_bytes(), 1), reader->bytes(i),
                   [&source, reader, i](StreamStatus& status) { look_at(source, reader->counts(i), status); }});
  }
  return all;
}

RunScene CycleControl::scene() {
  const CyclePlan& plan = cycle_.plan;
  RunScene scene;
  scene.cycle = plan.cycle;
  scene.trains = plan.training;
  scene.checkpointing = cycle_.keeps();
  scene.epochs = std::max<int64_t>(plan.epochs, 0);
  scene.metrics = cycle_.record.metrics().names();
  scene.window = plan.window;
  scene.from = figures();
  scene.learning_rate = rate_.set();
  scene.streams = probes();
  scene.stop = [&hooks = cycle_.hooks] { hooks.stop.store(true, std::memory_order_relaxed); };
  scene.checkpoint = [this] { return checkpoints_.write_now(); };
  return scene;
}

void CycleControl::begin() {
  cycle_.hooks.control->begin(scene());
  rate_.follow_control();
  if (cycle_.keeps()) checkpoints_.tell();
}

void CycleControl::before_step(StepBoundary::Turn& turn) {
  RunControl& control = *cycle_.hooks.control;
  for (bool told = false;; told = true) {
    if (control.enter()) {
      if (told) cycle_.event("resume", "the run went on");
      return;
    }
    if (!told) cycle_.event("pause", "the run was paused");
    cycle_.heed_stop();
    if (cycle_.stopping()) return;
    readers_.settle();
    turn.leave_during([&] { control.wait_while_held(); });  // lets another thread take a checkpoint
  }
}

void CycleControl::batch_began(const Slot& slot) {
  if (!cycle_.hooks.control->wants_sample()) return;
  auto sample = std::make_shared<BatchSample>();
  sample->cycle = cycle_.plan.cycle;
  sample->step = cycle_.record.step() + 1;
  sample->count = std::min<uint64_t>(slot.count, BatchSample::kMost);
  for (size_t i = 0; i < slot.pointers.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(slot.pointers[i]);
    sample->streams.emplace_back(from, from + cycle_.plan.reader->bytes(i) * sample->count);
  }
  cycle_.hooks.control->give_sample(std::move(sample));
}

RunFigures CycleControl::figures() const {
  const Progress p = cycle_.record.progress(cycle_.record.now());
  return {p.epoch, p.step, p.samples, p.window, p.seconds, p.fraction, cycle_.report.learning_rate};
}

void CycleControl::step_ended() {
  if (cycle_.hooks.control->holds()) readers_.settle();
  if (const double now = cycle_.record.now(); now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    cycle_.watch.read_windows();
  }
  cycle_.record.metrics().values(values_);
  cycle_.hooks.control->leave(figures(), values_);
}

void CycleControl::epoch_closed(const EpochReport& epoch, const Progress& progress) {
  cycle_.hooks.control->end_epoch(row_of(epoch, progress));
}

}  // namespace harmonics::engine
