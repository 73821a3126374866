// What of a CycleRun keeps weights finite: a copy now and then, and going back to it.
#include <cstring>

#include "engine/cycle/cycle_run.hpp"
#include "engine/cycle/last_good.hpp"

namespace harmonics {

std::string CycleRun::spoilt() const { return owner_.good_ ? owner_.good_->spoilt(plan_.graph.store()) : ""; }

void CycleRun::expect_finite() const {
  if (const std::string name = spoilt(); !name.empty()) throw SpoiltWeights(name);
}

// Of the step that has just ended.
void CycleRun::keep_good() {
  if (!owner_.good_) return;
  expect_finite();
  kept_rate_ = rate_set();
  owner_.good_->keep(plan_.graph, state(), record_.now());
}

// Of producers that cannot be read again the first sample will say so.
std::string CycleRun::why_not_repeated() const {
  if (plan_.live) return "live streams are read once";
  if (plan_.reader->joins_by_number()) return "samples were joined as they arrived";
  if (plan_.settings.seconds && !plan_.settings.schedule.is_constant()) return "the learning rate follows the clock";
  for (const GraphConditional& c : plan_.graph.graph().conditionals)
    if (c.cycle == plan_.cycle && c.predicate && (c.predicate->item->flags & HX_BY_CLOCK))
      return "'" + c.predicate->item->name + "' depends on more than the run";
  return "";
}

// While steps are repeated. Has it spoilt anything? Then it never was, and the run is over.
bool CycleRun::undo_if_spoilt() { return owner_.repeats_until_ && !spoilt().empty() && !undo_step(); }

bool CycleRun::undo_step() {
  owner_.good_->put_back(plan_.graph);
  record_.drop_step();
  finish_because("not finite");
  return false;
}

// Batches of a step that never ended moved them.
void CycleRun::put_back_states() {
  if (record_.gathered() == 0) return;
  ParameterStore& store = plan_.graph.store();
  for (auto& [name, bytes] : states_) store.assign(name, view_of(store.find(name)->type, bytes.data()));
}

// What the streams, a batch or a consumer did wrong has changed nothing: the steps before it are kept.
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

}  // namespace harmonics
