#include "engine/cycle/finite_weights.hpp"

#include "engine/bound/not_finite.hpp"
#include "engine/cycle/last_good.hpp"

namespace harmonics::engine {

void FiniteWeights::open() {
  if (!cycle_.plan.training) return;
  const std::lock_guard<std::mutex> lock(cycle_.hooks.good_access);
  cycle_.hooks.good = std::make_unique<LastGood>(cycle_.plan.graph.store());
}

std::string FiniteWeights::first_non_finite() const {
  return cycle_.hooks.good ? cycle_.hooks.good->first_non_finite(cycle_.plan.graph.store()) : "";
}

void FiniteWeights::expect_finite() const {
  if (const std::string name = first_non_finite(); !name.empty()) throw NonFiniteWeights(name);
}

void FiniteWeights::keep() {
  LastGood* const good = cycle_.hooks.good.get();
  if (!good) return;
  expect_finite();
  const std::lock_guard<std::mutex> lock(cycle_.hooks.good_access);
  kept_rate_ = rate_.set();
  good->keep(cycle_.plan.graph, state_.of_last_step(), cycle_.record.now());
}

void FiniteWeights::keep_last() {
  const LastGood* const good = cycle_.hooks.good.get();
  if (good && good->kept().state.step != cycle_.record.step() && first_non_finite().empty()) keep();
}

void FiniteWeights::offer_copy(bool offered) {
  CycleHooks& hooks = cycle_.hooks;
  const std::lock_guard<std::mutex> lock(hooks.good_access);
  hooks.good_is_last = offered && hooks.good && hooks.good->kept().state.step == cycle_.record.step();
}

// Renews the copy when the rate set from outside has changed: repeated steps use the rate stored in the copy.
void FiniteWeights::step_began() {
  if (rate_.set() != kept_rate_) keep();
}

void FiniteWeights::step_ended() {
  const CycleHooks& hooks = cycle_.hooks;
  if (hooks.repeats_until || hooks.good->due(cycle_.record.now()))
    keep();
  else if (cycle_.interrupted())
    keep_last();
}

bool FiniteWeights::undo_if_spoilt() {
  if (!cycle_.hooks.repeats_until || first_non_finite().empty()) return false;
  undo_step();
  return true;
}

void FiniteWeights::undo_step() {
  cycle_.hooks.good->put_back(cycle_.plan.graph);
  cycle_.record.drop_step();
  cycle_.boundary.end_step();
  cycle_.finish_because("not finite");
}

void FiniteWeights::refuse(const CompiledStep& program, const Slot& slot) {
  if (cycle_.hooks.repeats_until) return undo_step();
  const CyclePlan& plan = cycle_.plan;
  const auto count = static_cast<int64_t>(slot.count);
  LoweringOptions o = cycle_.programs.options(count);
  o.observe = true;
  const NotFinite step{
      plan.graph,      plan.producers,       slot.pointers,
      count,           cycle_.record.step(), slot.epoch + 1,
      *program.loss(), first_non_finite(),   cycle_.hooks.good && !cycle_.hooks.good->never_finite().empty()};
  throw not_finite(step, o, plan.executor, plan.run);
}

// Returns the reason as a text. Producers that cannot be read again are not checked: reading their first sample fails.
std::string FiniteWeights::why_not_repeated() const {
  const CyclePlan& plan = cycle_.plan;
  if (plan.live) return "live streams are read once";
  if (plan.reader->joins_by_number()) return "samples were joined as they arrived";
  if (plan.settings.seconds && !plan.settings.schedule.is_constant()) return "the learning rate follows the clock";
  for (const GraphConditional& c : plan.graph.graph().conditionals)
    if (c.cycle == plan.cycle && c.predicate && (c.predicate->item->flags & HX_BY_CLOCK))
      return "'" + c.predicate->item->name + "' depends on more than the run";
  return "";
}

}  // namespace harmonics::engine
