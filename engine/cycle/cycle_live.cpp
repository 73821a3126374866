#include "engine/cycle/cycle_live.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include <fmt/core.h>

#include "engine/checkpoint/checkpointer.hpp"

namespace harmonics::engine {

namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr double kTellLostAgain = 5;
constexpr int kToldAtOnce = 5;  // single notes about refused samples; later ones come with those about lost samples
// If another run continues the streams, the run waits this long for a last sample, because only closing a stream ends a
// read that waits.
constexpr double kGrace = 1;

std::string refusal(const std::string& name, const LiveStreams::LossCounts& gone, uint64_t told) {
  if (gone.refused == told) return fmt::format("'{}': {}", name, gone.last_error);
  if (gone.refused == 1) return fmt::format("a sample of '{}' is refused: {}", name, gone.last_error);
  return fmt::format("{} samples of '{}' are refused: {}", gone.refused, name, gone.last_error);
}

}  // namespace

CycleLive::~CycleLive() {
  Checkpointer* const checkpoints = cycle_.hooks.checkpoints;
  if (!checkpoints) return;
  checkpoints->wait();
  checkpoints->on_saved(nullptr);
}

void CycleLive::open() {
  if (!streams_.any()) return;
  const RunState* const from = cycle_.resumed();
  if (cycle_.plan.from) return go_on(*cycle_.plan.from);
  if (cycle_.keeps()) {
    streams_.begin(from, cycle_.at.reads);
    tell_durable();
  } else if (from && !from->live.empty()) {
    throw Error(ErrorKind::Usage, "resuming a run with live streams requires --checkpoint", {},
                {"add --checkpoint DIR, so that senders with ack=durable can drop samples"});
  }
}

void CycleLive::go_on(const LiveReading& former) {
  const CyclePlan& plan = cycle_.plan;
  for (size_t i = 0; i < plan.producers.size(); ++i) cycle_.at.reads[i] = plan.reader->reads(i);
  streams_.go_on(former.restored);
  state_.continue_from(former);
  if (!cycle_.keeps()) return;
  if (state_.not_resumable().empty()) state_.note_if_not_resumable();
  tell_durable();
}

void CycleLive::tell_durable() {
  cycle_.hooks.checkpoints->on_saved([this](const RunState& state) { streams_.durable(state); });
}

void CycleLive::hand_over() {
  CyclePlan& plan = cycle_.plan;
  plan.graph.live_reading() =
      LiveReading{plan.producers, std::move(plan.reader), streams_.restored(), state_.not_resumable()};
}

std::jthread CycleLive::watch() {
  if (!streams_.any()) return {};
  return std::jthread([this](const std::stop_token& over) { look_until(over); });
}

void CycleLive::look_until(const std::stop_token& over) {
  const CyclePlan& plan = cycle_.plan;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock<std::mutex> lock(mutex);
  bool ended_here = false;  // false if a step ended the run: no read waits for a sample then
  while (!wake.wait_for(lock, over, kLook, [&] { return over.stop_requested(); })) {
    tell_gone();
    const bool asked = cycle_.stop_requested();
    ended_here = end_if_due(asked) || ended_here;
    tell_late_notes();
    const bool waits = ended_here && cycle_.filling;
    if (cycle_.stopping()) {
      if (plan.goes_on && !waits && (!asked || plan.run.goes_on)) return;
      plan.reader->cut();
      return streams_.cancel();
    }
    if (cycle_.keeps()) checkpoints_.write_between_steps(streams_.wants_durable());
  }
}

void CycleLive::tell_gone() {
  if (cycle_.now() - told_lost_at_ >= kTellLostAgain) {
    const auto boundary = cycle_.boundary.hold();
    report_lost();
  } else if (told_refusals_ < kToldAtOnce) {
    const auto gone = streams_.gone();
    if (gone.empty()) return;
    const auto boundary = cycle_.boundary.hold();
    report_refused(gone);
  }
}

// Ends a run that waits for samples. Returns whether this call ended it.
bool CycleLive::end_if_due(bool asked) {
  const CyclePlan& plan = cycle_.plan;
  if (asked) return cycle_.finish_because("interrupt");
  const bool due = plan.settings.seconds && cycle_.now() >= *plan.settings.seconds + (plan.goes_on ? kGrace : 0);
  return due && cycle_.finish_because("for");
}

void CycleLive::tell_late_notes() {
  const auto text = cycle_.plan.reader->take_note();
  if (!text) return;
  const auto boundary = cycle_.boundary.hold();
  cycle_.note(*text);
}

// Losses within kTellLostAgain seconds are reported in one note, at the latest when the run ends.
void CycleLive::report_lost() {
  const auto all = streams_.gone();
  for (const auto& [name, gone] : all) {
    if (gone.lost == 0) continue;
    uint64_t& told = cycle_.report.lost[name];
    if (gone.lost == told) continue;
    cycle_.note(fmt::format("{} samples of '{}' are lost: {}", gone.lost, name,
                            gone.at_most_once ? "they were sent at most once" : "no sender still has them"));
    told = gone.lost;
  }
  report_refused(all);
  told_lost_at_ = cycle_.now();
}

// Reports the same counts only once: streams of one source share them.
void CycleLive::report_refused(const std::map<std::string, LiveStreams::LossCounts>& all) {
  const LiveStreams::LossCounts* before = nullptr;
  for (const auto& [name, gone] : all) {
    uint64_t told = 0;
    if (const auto at = cycle_.report.refused.find(name); at != cycle_.report.refused.end()) told = at->second;
    std::string& error = cycle_.report.last_error[name];
    if (gone.refused == told && gone.last_error == error) continue;
    if (gone.refused > 0) cycle_.report.refused[name] = gone.refused;
    error = gone.last_error;
    const bool same = before && before->refused == gone.refused && before->last_error == gone.last_error;
    before = &gone;
    if (same) continue;
    ++told_refusals_;
    cycle_.note(refusal(name, gone, told));
  }
}

}  // namespace harmonics::engine
