// The part of CycleRun that handles live streams: their positions, and ending a run that waits for samples without
// losing its results.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <fmt/core.h>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/cycle_run.hpp"

namespace harmonics::engine {

namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr double kTellLostAgain = 5;
constexpr int kToldAtOnce = 5;  // single notes about refused samples; later ones come with those about lost samples
// If another run continues the streams, the run waits this long for a last sample: a waiting read can be ended only
// by closing the stream.
constexpr double kGrace = 1;

}  // namespace

// Streams with positions continue where the checkpoint says, and are informed which samples later checkpoints
// contain.
void CycleRun::begin_live() {
  if (!live_.any()) return;
  if (plan_.from) {
    std::vector<uint64_t> used;
    for (size_t i = 0; i < plan_.producers.size(); ++i) used.push_back(plan_.reader->reads(i));
    live_.use(used);
    live_.go_on(plan_.from->restored);
    not_resumable_ = plan_.from->not_resumable;
    if (!keeps()) return;
    if (not_resumable_.empty()) tell_resumable();
    owner_.checkpoints_->on_saved([this](const RunState& state) { live_.durable(state); });
    return;
  }
  if (!keeps()) {
    if (resumed() && !resumed()->live.empty())
      throw Error(ErrorKind::Usage, "a run of live streams is gone on with where checkpoints are kept", {},
                  {"add --checkpoint DIR: who sends waits for what they hold"});
    return;
  }
  live_.begin(resumed());
  owner_.checkpoints_->on_saved([this](const RunState& state) { live_.durable(state); });
}

// Leaves the streams to the cycle that continues them. The last step has used everything that was read.
void CycleRun::leave_live() {
  plan_.graph.live_reading() = LiveReading{plan_.producers, std::move(plan_.reader), live_.restored(), not_resumable_};
}

void CycleRun::end_live() {
  if (!owner_.checkpoints_) return;
  owner_.checkpoints_->wait();
  owner_.checkpoints_->on_saved(nullptr);
}

// Runs on a thread beside the stages, which may wait for samples when the run should stop or a checkpoint is due.
void CycleRun::watch_live(const std::stop_token& over) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock<std::mutex> lock(mutex);
  bool ended_here = false;  // false if a step ended the run: no sample is awaited then
  while (!wake.wait_for(lock, over, kLook, [&] { return over.stop_requested(); })) {
    if (now() - told_lost_at_ >= kTellLostAgain) {
      const std::lock_guard<std::mutex> noting(stepping_);
      tell_lost();
    } else if (told_refusals_ < kToldAtOnce) {
      if (const auto gone = live_.gone(); !gone.empty()) {
        const std::lock_guard<std::mutex> noting(stepping_);
        tell_refused(gone);
      }
    }
    const bool asked = owner_.stop_.load(std::memory_order_relaxed);
    if (asked)
      ended_here = finish_because("interrupt") || ended_here;
    else if (plan_.settings.seconds && now() >= *plan_.settings.seconds + (plan_.goes_on ? kGrace : 0))
      ended_here = finish_because("for") || ended_here;
    if (const auto text = plan_.reader->take_note()) {
      const std::lock_guard<std::mutex> noting(stepping_);
      note(*text);
    }
    const bool waits = ended_here && filling_;
    if (stopping() && plan_.goes_on && !waits && (!asked || plan_.run.goes_on)) return;
    if (stopping()) {
      plan_.reader->cut();
      return live_.cancel();
    }
    if (keeps()) look_after_checkpoints();
  }
}

// Losses within kTellLostAgain seconds are reported in one note, at the latest when the run ends.
void CycleRun::tell_lost() {
  const auto all = live_.gone();
  for (const auto& [name, gone] : all) {
    if (gone.lost == 0) continue;
    uint64_t& told = report_.lost[name];
    if (gone.lost == told) continue;
    note(fmt::format("{} samples of '{}' are lost: {}", gone.lost, name,
                     gone.at_most_once ? "they were sent at most once" : "no sender has them any more"));
    told = gone.lost;
  }
  tell_refused(all);
  told_lost_at_ = now();
}

// Streams of one source report the same counts, so only the first is reported.
void CycleRun::tell_refused(const std::map<std::string, LiveStreams::Gone>& all) {
  const LiveStreams::Gone* before = nullptr;
  for (const auto& [name, gone] : all) {
    uint64_t told = 0;
    if (const auto at = report_.refused.find(name); at != report_.refused.end()) told = at->second;
    std::string& error = report_.last_error[name];
    if (gone.refused == told && gone.last_error == error) continue;
    if (gone.refused > 0) report_.refused[name] = gone.refused;
    error = gone.last_error;
    const bool same = before && before->refused == gone.refused && before->last_error == gone.last_error;
    before = &gone;
    if (same) continue;
    ++told_refusals_;
    if (gone.refused == told)
      note(fmt::format("'{}': {}", name, gone.last_error));
    else if (gone.refused == 1)
      note(fmt::format("a sample of '{}' is refused: {}", name, gone.last_error));
    else
      note(fmt::format("{} samples of '{}' are refused: {}", gone.refused, name, gone.last_error));
  }
}

// Writes a checkpoint that became due after the last step, or that senders wait for.
void CycleRun::look_after_checkpoints() {
  const bool wanted = live_.wants_durable();
  const std::lock_guard<std::mutex> lock(stepping_);
  Checkpointer& c = *owner_.checkpoints_;
  if (over_ || stopping() || c.busy()) return;
  tell_checkpoints();
  if (record_.step() == 0 || record_.step() == looked_at_) return;
  if (!wanted && !c.due(now(), record_.step(), false, epoch_)) return;
  if (!spoilt().empty()) return;  // reported by the next check of the training thread or at the end
  looked_at_ = record_.step();
  c.start([this](TensorFile& file) { return fill(file); });
}

}  // namespace harmonics::engine
