// The part of CycleRun that handles checkpoints: writing them and resuming from them.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/cycle_run.hpp"

namespace harmonics::engine {

namespace {

std::string reading(const JointOptions& o) {
  return fmt::format("shuffle={} skip={} take={} shard={}/{} repeat={} seed={}", o.shuffle, o.skip, o.take, o.shard,
                     o.shards, o.repeat, o.seed);
}

void expect_same(std::vector<std::string>& notes, const std::string& what, const std::string& was,
                 const std::string& is) {
  if (was != is) notes.push_back(fmt::format("{} was {} when the checkpoint was written and is {} now", what, was, is));
}

std::string size_text(uint64_t n) { return n ? std::to_string(n) : "unknown"; }

}  // namespace

const RunState* CycleRun::resumed() const { return owner_.resume_ ? &owner_.resume_->state : nullptr; }

void CycleRun::note(const std::string& text) {
  if (owner_.control_) owner_.control_->note("note", text);
  if (owner_.note_)
    owner_.note_(text);
  else
    report_.notes.push_back(text);
}

void CycleRun::event(const char* kind, std::string text) {
  constexpr size_t kMost = 256;
  if (report_.events.size() == kMost) report_.events.erase(report_.events.begin());
  report_.events.push_back(
      {kind, std::move(text), static_cast<int64_t>(record_.epoch()) + 1, record_.step(), record_.now()});
  if (owner_.event_) owner_.event_(report_.events.back());
}

void CycleRun::tell_resumable() {
  for (int n : plan_.producers) {
    Source& source = plan_.graph.streams().source(n);
    if (plan_.from && !source.info().live) continue;  // already being read; its note was given earlier
    const bool by_number = plan_.reader->joins_by_number() && !source.info().live;
    const std::string why =
        by_number ? fmt::format("'{}' is no live stream, and joined by number", source.name()) : source.cannot_seek();
    if (why.empty() || !not_resumable_.empty()) continue;
    not_resumable_ = why;
    note(fmt::format("checkpoints of this run keep its weights, but it cannot be resumed from them: {}", why));
  }
}

RunState CycleRun::state() {
  RunState s;
  record_.store(s);
  watch_.store(s);
  s.cycle = plan_.cycle;
  s.epoch = epoch_;
  s.index = index_;
  s.not_resumable = not_resumable_;
  for (int n : plan_.producers) s.streams[plan_.name_of(n)] = plan_.graph.streams().source(n).info().size;
  live_.store(s);
  s.learning_rate_set = rate_set();
  s.reading = reading(plan_.reader->options());
  const Graph& g = plan_.graph.graph();
  s.graph = g.name;
  s.identity = identity_of(g.source ? g.source->text() : "");
  s.seed = plan_.settings.seed;
  s.training = plan_.settings.training();
  s.device = plan_.run.device + (plan_.run.precision == Precision::fp32 ? ""
                                 : plan_.run.precision == Precision::automatic
                                     ? ", fp16"
                                     : std::string(", ") + precision_name(plan_.run.precision));
  s.batch = plan_.settings.batch;
  s.accumulate = plan_.settings.accumulate;
  s.implementations = programs_.implementations();
  return s;
}

// A checkpoint of another graph would leave every weight at its initial value.
void CycleRun::expect_belonging() const {
  const ParameterStore& store = plan_.graph.store();
  std::string first;
  size_t weights = 0;
  for (const auto& [name, tensor] : owner_.resume_->file.tensors) {
    if (name.find('/') != std::string::npos) continue;  // moments
    const auto at = store.all().find(name);
    if (at != store.all().end() && at->second.type == type_of(tensor)) return;
    if (weights++ == 0) first = name;
  }
  if (weights > 0)
    throw Error(
        ErrorKind::Weights,
        fmt::format("none of the {} tensors of {} belongs to '{}'", weights, owner_.resume_->path,
                    plan_.graph.graph().name),
        {},
        {fmt::format("its first is '{}'; parameters are named SOURCE.TARGET.FUNCTION..., so renamed layers begin anew",
                     first)});
}

// A different training configuration brings its own learning rate, so a rate set from outside is dropped.
std::string CycleRun::keep_rate(bool same_training) {
  const double rate = *rate_set_;
  if (same_training)
    return fmt::format(
        "the learning rate is {:g}, as it was set from outside; 'harmonics ctl PATH lr schedule' gives the schedule "
        "back",
        rate);
  rate_set_.reset();
  return fmt::format("the learning rate of {:g} that was set from outside is dropped: the training is another", rate);
}

// Reports what has changed since the checkpoint, and checks whether the run was already complete.
void CycleRun::go_on() {
  const RunState was = *resumed(), is = state();
  expect_belonging();
  std::vector<std::string> notes = std::exchange(owner_.resume_notes_, {});
  if (was.identity != is.identity) notes.push_back("the flow's text has changed since the checkpoint was written");
  for (const auto& [name, size] : is.streams)
    if (const auto at = was.streams.find(name); at != was.streams.end())
      expect_same(notes, "the size of '" + name + "'", size_text(at->second), size_text(size));
  expect_same(notes, "how streams are read", was.reading, is.reading);
  expect_same(notes, "the seed", std::to_string(was.seed), std::to_string(is.seed));
  expect_same(notes, "the training", was.training, is.training);
  expect_same(notes, "the batch", std::to_string(was.batch), std::to_string(is.batch));
  expect_same(notes, "the device", was.device, is.device);
  for (const auto& [functional, winner] : is.implementations)
    if (const auto at = was.implementations.find(functional); at != was.implementations.end())
      expect_same(notes, "what computes '" + functional + "'", at->second, winner);
  const bool branches = !plan_.graph.graph().conditionals.empty();  // moments are declared when a branch is chosen
  for (std::string& text : plan_.graph.end_restore(owner_.resume_->file, branches)) notes.push_back(std::move(text));
  for (std::string& text : watch_.notes(was)) notes.push_back(std::move(text));
  if (rate_set_) notes.push_back(keep_rate(was.training == is.training));
  for (const std::string& text : notes) note(text);
  owner_.resume_.reset();  // its tensors have been moved
  start_ = owner_.clock_();
  check_conditions();
}

RunState CycleRun::fill(TensorFile& file) {
  plan_.graph.snapshot(file);
  if (record_.gathered() > 0)
    for (const auto& [name, bytes] : states_)
      std::memcpy(file.tensors.at(name).raw()->storage->data(), bytes.data(), bytes.size());
  return state();
}

// Every batch changes running statistics, but a checkpoint shows the end of a step.
void CycleRun::remember_states() {
  const ParameterStore& store = plan_.graph.store();
  for (const auto& [name, t] : store.all()) {
    if (t.role != Role::state) continue;
    std::vector<std::byte>& bytes = states_[name];
    bytes.resize(t.type.bytes());
    store.copy(name, bytes.data());
  }
}

void CycleRun::checkpoint_if_due(bool epoch_ended) {
  if (!keeps() || owner_.repeats_until_) return;
  Checkpointer& c = *owner_.checkpoints_;
  tell_checkpoints();
  if (stopping() || !c.due(record_.now(), record_.step(), epoch_ended, epoch_)) return;
  expect_finite();
  c.start([this](TensorFile& file) { return fill(file); });
}

bool CycleRun::checkpoint_now() {
  if (!keeps()) return false;
  const std::lock_guard<std::mutex> lock(stepping_);
  if (!over_) expect_finite();
  if (!over_) owner_.checkpoints_->write([this](TensorFile& file) { return fill(file); });
  tell_checkpoints();
  return true;
}

void CycleRun::last_checkpoint() {
  try {
    checkpoint_now();
  } catch (const Error& e) {
    report_.no_checkpoint = e.what();
  }
  const std::lock_guard<std::mutex> lock(stepping_);
  tell_checkpoints();
}

}  // namespace harmonics::engine
