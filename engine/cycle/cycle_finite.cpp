// The part of CycleRun that keeps weights finite: it copies them from time to time and restores the copy.
#include <cstring>

#include "engine/cycle/cycle_run.hpp"
#include "engine/cycle/last_good.hpp"

namespace harmonics::engine {

std::string CycleRun::spoilt() const { return owner_.good_ ? owner_.good_->spoilt(plan_.graph.store()) : ""; }

void CycleRun::expect_finite() const {
  if (const std::string name = spoilt(); !name.empty()) throw SpoiltWeights(name);
}

// Copies the state after the step that has just ended.
void CycleRun::keep_good() {
  if (!owner_.good_) return;
  expect_finite();
  kept_rate_ = rate_set();
  owner_.good_->keep(plan_.graph, state(), record_.now());
}

// Producers that cannot be read again are not checked here: reading their first sample fails.
std::string CycleRun::why_not_repeated() const {
  if (plan_.live) return "live streams are read once";
  if (plan_.reader->joins_by_number()) return "samples were joined as they arrived";
  if (plan_.settings.seconds && !plan_.settings.schedule.is_constant()) return "the learning rate follows the clock";
  for (const GraphConditional& c : plan_.graph.graph().conditionals)
    if (c.cycle == plan_.cycle && c.predicate && (c.predicate->item->flags & HX_BY_CLOCK))
      return "'" + c.predicate->item->name + "' depends on more than the run";
  return "";
}

// Used while steps are repeated. A step that made a number non-finite is undone and ends the run.
bool CycleRun::undo_if_spoilt() { return owner_.repeats_until_ && !spoilt().empty() && !undo_step(); }

bool CycleRun::undo_step() {
  owner_.good_->put_back(plan_.graph);
  record_.drop_step();
  finish_because("not finite");
  return false;
}

// Restores running statistics that batches of an unfinished step have changed.
void CycleRun::put_back_states() {
  if (record_.gathered() == 0) return;
  ParameterStore& store = plan_.graph.store();
  for (auto& [name, bytes] : states_) store.assign(name, view_of(store.find(name)->type, bytes.data()));
}

// An error of a stream, a batch or a consumer has changed no weights, so the steps before it are kept.
void CycleRun::abandon(const Error& e) {
  put_back_states();
  record_.drop_step();
  const bool diverged = e.kind() == ErrorKind::Diverged;
  const bool kept = diverged || is_of_streams(e.kind()) || e.kind() == ErrorKind::Output;
  if (keeps() && record_.step() > 0 && kept && spoilt().empty()) last_checkpoint();
  report_.stopped_by = diverged ? "not finite" : "error";
  record_.finish(record_.now());
  report_.epochs = record_.closed_epochs();
}

}  // namespace harmonics::engine
