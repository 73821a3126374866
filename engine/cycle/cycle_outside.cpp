// The part of CycleRun that talks to other threads: readers of its weights, and those that watch and control it.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/cycle_run.hpp"

namespace harmonics::engine {

namespace {

constexpr double kBetweenLooks = 0.25;  // seconds between readings of the window metrics

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

}  // namespace

CycleRun::~CycleRun() {
  end_live();
  if (snapshots_) snapshots_->detach();
}

void CycleRun::keep_snapshots() {
  if (!owner_.snapshots_) return;
  if (snapshots_) snapshots_->detach(true);  // between two steps, after functions were replaced
  snapshots_ = std::make_shared<Snapshots>(plan_.graph.store(), WeightsVersion{plan_.cycle, record_.step()});
  snapshots_->attach(stepping_);
  owner_.snapshots_(snapshots_);
}

void CycleRun::begin_control() {
  if (!owner_.control_) return;
  RunScene scene;
  scene.cycle = plan_.cycle;
  scene.trains = plan_.training;
  scene.checkpointing = keeps();
  scene.epochs = std::max<int64_t>(plan_.epochs, 0);
  scene.metrics = record_.metrics().names();
  scene.window = plan_.window;
  scene.from = figures();
  scene.learning_rate = rate_set_;
  const JointReader* const reader =
      plan_.reader.get();  // a probe may be called after the reader was passed to the next cycle
  for (size_t i = 0; i < plan_.producers.size(); ++i) {
    const Source& source = plan_.graph.streams().source(plan_.producers[i]);
    scene.streams.push_back(
        {plan_.name_of(plan_.producers[i]), source.info().live,
         plan_.reader->bytes(i) / std::max<size_t>(source.sample_bytes(), 1), plan_.reader->bytes(i),
         [&source, reader, i](StreamStatus& status) { look_at(source, reader->counts(i), status); }});
  }
  scene.stop = [this] { owner_.stop(); };
  scene.checkpoint = [this] { return owner_.checkpoint_now(); };
  owner_.control_->begin(std::move(scene));
  controlled_ = true;
  if (keeps()) tell_checkpoints();
}

// Returns the rate that was set in place of the schedule.
std::optional<double> CycleRun::rate_set() const {
  if (!controlled_) return rate_set_;
  const double set = owner_.control_->learning_rate();
  return std::isnan(set) ? std::nullopt : std::optional(set);
}

void CycleRun::wait_while_paused(std::unique_lock<std::mutex>& stepping) {
  for (bool told = false;; told = true) {
    if (owner_.control_->enter()) {
      if (told) event("resume", "the run went on");
      return;
    }
    if (!told) event("pause", "the run was paused");
    if (owner_.stop_.load(std::memory_order_relaxed)) finish_because("interrupt");
    if (stopping()) return;
    if (snapshots_) snapshots_->settle();
    stepping.unlock();  // a checkpoint may be taken meanwhile
    owner_.control_->wait_while_held();
    stepping.lock();
  }
}

void CycleRun::give_sample(const Slot& slot) {
  auto sample = std::make_shared<BatchSample>();
  sample->cycle = plan_.cycle;
  sample->step = record_.step() + 1;
  sample->count = std::min<uint64_t>(slot.count, BatchSample::kMost);
  for (size_t i = 0; i < slot.pointers.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(slot.pointers[i]);
    sample->streams.emplace_back(from, from + plan_.reader->bytes(i) * sample->count);
  }
  owner_.control_->give_sample(std::move(sample));
}

RunFigures CycleRun::figures() const {
  const Progress p = record_.progress(record_.now());
  return {p.epoch, p.step, p.samples, p.window, p.seconds, p.fraction, report_.learning_rate};
}

void CycleRun::tell_control() {
  if (snapshots_ && owner_.control_->holds()) snapshots_->settle();
  if (const double now = record_.now(); now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    watch_.read_windows();
  }
  record_.metrics().values(values_);
  owner_.control_->leave(figures(), values_);
}

// Requires the boundary lock. A finished write is noticed only here.
void CycleRun::tell_checkpoints() {
  for (const std::string& text : owner_.checkpoints_->take_notes()) {
    note(text);
    if (owner_.control_) owner_.control_->not_checkpointed(text);
  }
  if (const std::string& last = owner_.checkpoints_->last(); last != told_checkpoint_) {
    told_checkpoint_ = last;
    event("checkpoint", "checkpoint " + last);
  }
  if (owner_.control_ && !owner_.checkpoints_->last().empty())
    owner_.control_->checkpointed(owner_.checkpoints_->last());
}

RunRow CycleRun::row_of(const EpochReport& epoch, const Progress& progress) {
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

}  // namespace harmonics::engine
