#include "engine/checkpoint/checkpointer.hpp"

#include <charconv>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

// Identifies the step and the positions of the streams. A stream may end after the last step, which changes only its
// position; a further checkpoint then lets its sender drop the end.
std::string place_of(const RunState& s) {
  std::string place = fmt::format("{}/{}/{}/{}/{}", s.cycle, s.step, s.epoch, s.index, s.identity);
  for (const auto& [name, live] : s.live) place += fmt::format("/{}/{}/{}", name, live.index, live.position);
  return place;
}

}  // namespace

CheckpointInterval parse_interval(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  CheckpointInterval every;
  const bool whole = value == static_cast<double>(static_cast<int64_t>(std::min(value, 1e15)));
  if (error == std::errc() && value > 0 && value < 1e15) {
    if (unit == "s" || unit == "m" || unit == "h")
      return every.seconds = value * (unit == "s" ? 1 : unit == "m" ? 60 : 3600), every;
    if (whole && (unit == "step" || unit == "steps")) return every.steps = static_cast<int64_t>(value), every;
    if (whole && (unit == "epoch" || unit == "epochs")) return every.epochs = static_cast<int64_t>(value), every;
  }
  throw Error(ErrorKind::Usage, fmt::format("'{}' is not an interval", text), {},
              {"write a time, steps or epochs: 5m, 90s, 500steps, 1epoch"});
}

Checkpointer::Checkpointer(std::string directory, CheckpointInterval every, size_t keep, FileCalls& calls)
    : folder_(std::move(directory), calls), every_(every), keep_(std::max<size_t>(keep, 1)), calls_(calls) {
  folder_.claim();
  if (const auto entries = folder_.list(); !entries.empty()) last_ = entries.front().path;
}

Checkpointer::~Checkpointer() {
  if (thread_.joinable()) thread_.join();
}

void Checkpointer::continue_from(const Checkpoint& checkpoint) {
  last_ = checkpoint.path;
  last_position_ = place_of(checkpoint.state);
  last_seconds_ = checkpoint.state.seconds;
  last_step_ = checkpoint.state.step;
}

bool Checkpointer::due(double now, int64_t step, bool epoch_ended, uint64_t epoch) {
  const bool time = every_.seconds > 0 && now - last_seconds_ >= every_.seconds;
  const bool steps = every_.steps > 0 && step - last_step_ >= every_.steps;
  const bool epochs = every_.epochs > 0 && epoch_ended && epoch % static_cast<uint64_t>(every_.epochs) == 0;
  return (time || steps || epochs) && !busy();
}

bool Checkpointer::taken(const Content& content) {
  state_ = content(content_);
  write_state(state_, content_);
  position_ = place_of(state_);
  last_seconds_ = state_.seconds;
  last_step_ = state_.step;
  return position_ != last_position_;
}

void Checkpointer::start(const Content& content, std::optional<double> loss) {
  wait();
  if (!taken(content)) {  // the last one is of this state
    if (loss) rate_last(*loss);
    return;
  }
  loss_ = loss;
  writing_.store(true, std::memory_order_relaxed);
  try {
    thread_ = std::thread([this] {
      try {
        save();
      } catch (const std::exception& e) {
        failure_ = e.what();
      }
      writing_.store(false, std::memory_order_release);
    });
  } catch (...) {
    writing_.store(false, std::memory_order_relaxed);  // so that the next checkpoint is tried
    throw;
  }
}

void Checkpointer::keep_best(size_t most) { best_.emplace(folder_.path(), most, calls_); }

std::vector<BestCheckpoint> Checkpointer::best() {
  wait();
  return best_ ? best_->list() : std::vector<BestCheckpoint>();
}

bool Checkpointer::is_best(double loss) {
  wait();
  return best_ && best_->wants(loss);
}

void Checkpointer::rate_last(double loss) {
  if (!is_best(loss) || last_.empty()) return;
  rate(last_, loss);
  folder_.keep(keep_, best_->files());
}

// Adds a checkpoint to the best ones. A failure is only reported, as the checkpoint itself is on disk.
void Checkpointer::rate(const std::string& path, double loss) {
  try {
    best_->add({path.substr(folder_.path().size() + 1), state_.step, loss});
  } catch (const Error& e) {
    unlisted_ = e.what();
  }
}

void Checkpointer::write(const Content& content) {
  wait();
  if (!taken(content)) return;
  loss_.reset();
  save();
  last_ = path_;
  last_position_ = position_;
}

void Checkpointer::save() {
  path_.clear();
  path_ = folder_.write(content_, state_.step);
  if (saved_) saved_(state_);
  if (best_ && loss_) rate(path_, *loss_);
  folder_.keep(keep_, best_ ? best_->files() : std::set<std::string>());
}

void Checkpointer::wait() {
  if (!thread_.joinable()) return;
  thread_.join();
  if (failure_.empty()) {
    last_ = path_;
    last_position_ = position_;
  } else {
    notes_.push_back(fmt::format("the checkpoint of step {} was not written: {}; {}", state_.step, failure_,
                                 last_.empty() ? std::string("there is none yet") : "the last good one is " + last_));
  }
  failure_.clear();
}

std::vector<std::string> Checkpointer::take_notes() {
  if (!writing_.load(std::memory_order_acquire)) {
    wait();
    if (!unlisted_.empty()) notes_.push_back("the list of the best checkpoints is not written: " + unlisted_);
    unlisted_.clear();
  }
  return std::exchange(notes_, {});
}

}  // namespace harmonics::engine
