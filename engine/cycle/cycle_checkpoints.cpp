#include "engine/cycle/cycle_checkpoints.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/run_control.hpp"

namespace harmonics::engine {

namespace {

void expect_same(std::vector<std::string>& notes, const std::string& what, const std::string& was,
                 const std::string& is) {
  if (was != is) notes.push_back(fmt::format("{} was {} when the checkpoint was written and is {} now", what, was, is));
}

// Returns the members of the list "a, b" that are not in the list `than`.
std::string further(const std::string& list, const std::string& than) {
  std::string more;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(", ", at), list.size());
    const std::string member = list.substr(at, end - at);
    if ((", " + than + ", ").find(", " + member + ", ") == std::string::npos)
      more += (more.empty() ? "" : ", ") + member;
    at = end + 2;
  }
  return more;
}

// Returns one line that lists the kernels and device routes that differ from those of the checkpoint. Returns "" if
// results are bitwise those of an uninterrupted run, or if another note explains the difference. Programs compiled
// later, for example for short batches, may add kernels; therefore only kernels that the checkpoint lacks count.
std::string other_routes(const RunState& was, const RunState& is) {
  constexpr size_t kShown = 3;
  const bool same_programs = was.identity == is.identity && was.batch == is.batch && was.training == is.training &&
                             was.accumulate == is.accumulate && was.device == is.device;
  std::vector<std::string> all;
  for (const auto& [what, route] : is.routes) {
    const auto before = was.routes.find(what);
    if (what.rfind("precision", 0) == 0 || before == was.routes.end() || before->second == route) continue;
    const bool kernels = what.rfind("kernels of ", 0) == 0;
    if (kernels && !same_programs) continue;
    const std::string now = kernels ? further(route, before->second) : route;
    if (!now.empty())
      all.push_back(fmt::format("{} {} ({} before)", kernels ? what : "the device is", now, before->second));
  }
  if (all.empty()) return "";
  std::string text = "bits may differ from an uninterrupted run: " + all.front();
  for (size_t i = 1; i < std::min(all.size(), kShown); ++i) text += "; " + all[i];
  return all.size() > kShown ? fmt::format("{}; and {} more", text, all.size() - kShown) : text;
}

std::string size_text(uint64_t n) { return n ? std::to_string(n) : "unknown"; }

}  // namespace

void CycleCheckpoints::open() {
  if (!cycle_.keeps()) return;
  if (!cycle_.resumed()) cycle_.plan.graph.expect_savable();
  if (!cycle_.plan.from) state_.note_if_not_resumable();
  told_ = cycle_.hooks.checkpoints->last();  // written by another run, or by this one earlier
}

void CycleCheckpoints::restore() {
  const RunState& from = *cycle_.resumed();
  cycle_.hooks.origin = cycle_.hooks.resume->path;
  cycle_.at.epoch = from.epoch;
  cycle_.at.index = from.index;
  cycle_.set_before(from.seconds);
  cycle_.report.resumed_at = from.step;
  rate_.restore(from);
  cycle_.record.restore(from);
  cycle_.watch.restore(from);
}

// Throws if the checkpoint belongs to another graph: all weights would keep their initial values.
void CycleCheckpoints::expect_belonging() const {
  const Checkpoint& checkpoint = *cycle_.hooks.resume;
  const ParameterStore& store = cycle_.plan.graph.store();
  std::string first, other_type;
  size_t weights = 0;
  for (const auto& [name, tensor] : checkpoint.file.tensors) {
    if (name.find('/') != std::string::npos) continue;  // moments
    const auto at = store.all().find(name);
    if (at != store.all().end() && at->second.type == type_of(tensor)) return;
    if (weights++ == 0) first = name;
    if (other_type.empty() && at != store.all().end())
      other_type = fmt::format("'{}' is {} in {}, but {} in '{}'", name, type_of(tensor).str(), checkpoint.path,
                               at->second.type.str(), cycle_.plan.graph.graph().name);
  }
  if (!other_type.empty())
    throw Error(
        ErrorKind::Weights, other_type, {},
        {"the model has other sizes than when the checkpoint was written: give it the former ones, or start anew "
         "in another directory"});
  if (weights > 0)
    throw Error(ErrorKind::Weights,
                fmt::format("none of the {} tensors of {} belongs to '{}'", weights, checkpoint.path,
                            cycle_.plan.graph.graph().name),
                {},
                {fmt::format("its first is '{}'; parameters are named SOURCE.TARGET.FUNCTION..., so renamed layers "
                             "start with new weights",
                             first)});
}

std::vector<std::string> CycleCheckpoints::differences(const RunState& was, const RunState& is) const {
  std::vector<std::string> notes = std::exchange(cycle_.hooks.resume_notes, {});
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
  if (std::string text = other_routes(was, is); !text.empty()) notes.push_back(std::move(text));
  return notes;
}

void CycleCheckpoints::end_restore() {
  BoundGraph& graph = cycle_.plan.graph;
  const RunState was = *cycle_.resumed(), is = state_.of_last_step();
  expect_belonging();
  std::vector<std::string> notes = differences(was, is);
  const bool branches = !graph.graph().conditionals.empty();  // moments of a branch are declared when it is chosen
  for (std::string& text : graph.end_restore(cycle_.hooks.resume->file, branches)) notes.push_back(std::move(text));
  for (std::string& text : cycle_.watch.notes(was)) notes.push_back(std::move(text));
  if (std::string text = rate_.keep(was.training == is.training); !text.empty()) notes.push_back(std::move(text));
  for (const std::string& text : notes) cycle_.note(text);
  cycle_.hooks.resume.reset();  // its tensors have been moved
}

void CycleCheckpoints::write_if_due(bool epoch_ended) {
  if (cycle_.hooks.repeats_until) return;
  Checkpointer& c = *cycle_.hooks.checkpoints;
  tell();
  if (cycle_.stopping() || !c.due(cycle_.record.now(), cycle_.record.step(), epoch_ended, cycle_.at.epoch)) return;
  weights_.expect_finite();
  c.start([this](TensorFile& file) { return state_.fill(file); });
}

void CycleCheckpoints::epoch_closed(const EpochReport& epoch, const Progress& /*progress*/) {
  loss_.reset();
  if (epoch.validation && epoch.validation->counts && !cycle_.hooks.repeats_until) loss_ = epoch.validation->loss;
}

void CycleCheckpoints::epoch_began() {
  write_best();
  write_if_due(true);
}

// Writes a checkpoint after the validation with the smallest loss so far. If the run ends, steps_ended() writes the
// last checkpoint instead, and run_ended() records its loss.
void CycleCheckpoints::write_best() {
  if (!loss_ || cycle_.stopping() || !cycle_.hooks.checkpoints->is_best(*loss_)) return;
  weights_.expect_finite();
  cycle_.hooks.checkpoints->start([this](TensorFile& file) { return state_.fill(file); }, loss_);
  loss_.reset();
}

void CycleCheckpoints::run_ended() {
  if (loss_ && cycle_.report.no_checkpoint.empty()) cycle_.hooks.checkpoints->rate_last(*loss_);
}

bool CycleCheckpoints::write_now() {
  if (!cycle_.keeps()) return false;
  const auto boundary = cycle_.boundary.hold();
  if (!cycle_.boundary.over()) {
    weights_.expect_finite();
    cycle_.hooks.checkpoints->write([this](TensorFile& file) { return state_.fill(file); });
  }
  tell();
  return true;
}

void CycleCheckpoints::write_between_steps(bool wanted) {
  const auto boundary = cycle_.boundary.hold();
  Checkpointer& c = *cycle_.hooks.checkpoints;
  if (cycle_.boundary.over() || cycle_.stopping() || c.busy()) return;
  tell();
  const int64_t step = cycle_.record.step();
  if (step == 0 || step == written_between_) return;
  if (!wanted && !c.due(cycle_.now(), step, false, cycle_.at.epoch)) return;
  if (!weights_.first_non_finite().empty())
    return;  // the next check by the thread of the steps, or at the end, reports it
  written_between_ = step;
  c.start([this](TensorFile& file) { return state_.fill(file); });
}

void CycleCheckpoints::write_last() {
  try {
    write_now();
  } catch (const Error& e) {
    cycle_.report.no_checkpoint = e.what();
  }
  const auto boundary = cycle_.boundary.hold();
  tell();
}

// Reports finished background writes. They are noticed only here.
void CycleCheckpoints::tell() {
  Checkpointer& c = *cycle_.hooks.checkpoints;
  RunControl* const control = cycle_.hooks.control;
  for (const std::string& text : c.take_notes()) {
    cycle_.note(text);
    if (control) control->not_checkpointed(text);
  }
  if (c.last() != told_) {
    told_ = c.last();
    cycle_.event("checkpoint", "checkpoint " + told_);
  }
  if (control && !c.last().empty()) control->checkpointed(c.last());
}

void CycleCheckpoints::steps_ended() {
  if (!cycle_.hooks.repeats_until || cycle_.record.step() > 0) write_last();
}

// Errors of streams, batches and consumers leave the weights unchanged, so the steps before them are saved.
void CycleCheckpoints::run_failed(const Error& e) {
  const bool kept = e.kind() == ErrorKind::Diverged || is_of_streams(e.kind()) || e.kind() == ErrorKind::Output;
  if (cycle_.record.step() > 0 && kept && weights_.first_non_finite().empty()) write_last();
}

}  // namespace harmonics::engine
