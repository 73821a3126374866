#include "engine/runtime/cycle_run.hpp"

#include <cmath>
#include <cstring>

#include <fmt/core.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include "engine/runtime/not_finite.hpp"

namespace harmonics {

CycleRun::CycleRun(CycleRuntime& owner, CycleReport& report)
    : owner_(owner), report_(report), plan_(owner.graph_, owner.cycle_, owner.settings_), feed_(plan_), record_(plan_, report),
      programs_(plan_, record_.metrics()) {
  if (plan_.training) {
    forget_moments();
    rate_.emplace(plan_.settings.schedule, plan_.settings.optimizer.lr, plan_.horizon());
    if (const auto note = rate_->note()) report_.notes.push_back(*note);
  }
  programs_.compile_first();
  check_until();
  feed_.allocate(programs_.result_types());
}

void CycleRun::run() {
  namespace flow = oneapi::tbb::flow;
  oneapi::tbb::task_arena arena(std::max(1, plan_.executor.threads()));
  start_ = std::chrono::steady_clock::now();
  arena.execute([&] {
    flow::graph g;
    flow::input_node<Slot*> input(g, [this](oneapi::tbb::flow_control& control) {
      Slot* slot = stopping() ? nullptr : feed_.next();
      if (!slot) control.stop();
      return slot;
    });
    flow::limiter_node<Slot*> limiter(g, CycleFeed::kInFlight);
    flow::function_node<Slot*, Slot*> step(g, flow::serial, [this](Slot* slot) { return this->step(*slot), slot; });
    // A serial node may start its next message before it has handed on the last: order is restored by number.
    flow::sequencer_node<Slot*> in_order(g, [](Slot* slot) { return slot->sequence; });
    flow::function_node<Slot*, flow::continue_msg> sink(g, flow::serial, [this](Slot* slot) { return deliver(*slot), flow::continue_msg(); });
    flow::make_edge(input, limiter);
    flow::make_edge(limiter, step);
    flow::make_edge(step, in_order);
    flow::make_edge(in_order, sink);
    flow::make_edge(sink, limiter.decrementer());
    input.activate();
    g.wait_for_all();
  });
  finish();
}

// Step numbers begin anew with every cycle, so the moments they correct do too.
void CycleRun::forget_moments() {
  for (const auto& [name, t] : plan_.graph.store().all())
    if (t.role == Role::moment) std::memset(t.storage->data(), 0, t.type.bytes());
}

// A condition on what no step of this cycle measures would never hold.
void CycleRun::check_until() const {
  if (!plan_.training) return;
  for (const Comparison& c : plan_.settings.until) {
    if (programs_.measured().count(c.metric)) continue;
    std::string known;
    for (const std::string& name : programs_.measured()) known += (known.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::Name, fmt::format("'until {}' can never hold: this cycle does not measure '{}'", c.metric, c.metric), c.span, {"it measures " + known});
  }
}

bool CycleRun::stopping() const {
  return owner_.stop_.load(std::memory_order_relaxed) || finished_.load(std::memory_order_relaxed) || plan_.epochs == 0 || plan_.settings.steps.value_or(1) <= 0;
}

void CycleRun::step(Slot& slot) {
  if (!stopping() && slot.epoch != record_.epoch()) {
    end_step();
    close_epoch(slot.epoch);
  }
  if (stopping()) {
    slot.count = 0;
    return;
  }
  run_batch(slot);
  if (record_.gathered() >= (plan_.training ? plan_.settings.accumulate : 1)) end_step();
}

void CycleRun::run_batch(Slot& slot) {
  if (record_.gathered() == 0) programs_.choose_branches();
  StepProgram& p = programs_.of_batch(static_cast<int64_t>(slot.count));
  CompiledStep& program = *p.step;
  program.check_indices(slot.pointers.data());
  program.set(slot.pointers.data(), next_rate(), record_.next_batch(), plan_.settings.seed);
  program.set_keep(record_.gathered() > 0);
  if (program.loss()) {
    program.run_forward();
    if (!std::isfinite(*program.loss())) diverged(program, slot);
    program.run_rest();
  } else {
    program.run();
  }
  record_.count_batch(p, static_cast<int64_t>(slot.count));
  for (size_t i = 0; i < plan_.wanted.size(); ++i) {
    slot.delivers[i] = p.results[i] != nullptr;
    if (p.results[i]) std::memcpy(slot.results[i].data(), p.results[i]->bytes(), programs_.result_types()[i]->bytes() * slot.count);
  }
}

float CycleRun::next_rate() {
  if (rate_) report_.learning_rate = rate_->at(record_.step(), plan_.settings.seconds ? record_.now() / *plan_.settings.seconds : 0);
  return static_cast<float>(report_.learning_rate);
}

// After the last batch of a step: of its group, or of the pass.
void CycleRun::end_step() {
  if (record_.gathered() == 0) return;
  if (CompiledStep* update = programs_.update()) {
    update->set(nullptr, next_rate(), record_.step() + 1, plan_.settings.seed);
    update->set_scale(static_cast<float>(static_cast<double>(plan_.batch) / static_cast<double>(record_.gathered_samples())));
    update->run();
  }
  record_.end_step(now());
  check_conditions();
}

void CycleRun::check_conditions() {
  const ResolvedSettings& s = plan_.settings;
  if (s.steps && record_.step() >= *s.steps) finish_because("steps");
  if (s.seconds && record_.now() >= *s.seconds) finish_because("for");
  for (const Comparison& c : s.until)
    if (record_.metrics().holds(c)) finish_because(fmt::format("until {} {} {:g}", c.metric, c.op, c.value));
  if (owner_.progress_ && record_.now() >= next_progress_) {
    next_progress_ = record_.now() + 0.1;
    owner_.progress_(record_.progress(record_.now()));
  }
}

void CycleRun::finish_because(std::string reason) {
  if (finished_.exchange(true)) return;
  report_.stopped_by = std::move(reason);
}

void CycleRun::close_epoch(uint64_t next) {
  const auto closed = record_.close_epoch(next, now());
  if (closed && owner_.epoch_) owner_.epoch_(*closed);
}

void CycleRun::diverged(const CompiledStep& program, const Slot& slot) {
  LoweringOptions o = programs_.options(static_cast<int64_t>(slot.count));
  o.observe = true;
  const NotFinite step{plan_.graph, plan_.producers, slot.pointers, static_cast<int64_t>(slot.count), record_.step(), slot.epoch + 1, *program.loss()};
  report_not_finite(step, o, plan_.executor, plan_.run);
}

void CycleRun::deliver(const Slot& slot) {
  if (slot.count == 0) return;
  for (size_t i = 0; i < plan_.wanted.size(); ++i) {
    if (!slot.delivers[i]) continue;
    const TensorType& type = *programs_.result_types()[i];
    const int n = plan_.wanted[i];
    plan_.graph.sinks().at(plan_.is_consumer(n) ? n : -1)->push(type.dtype, type.shape, slot.count, slot.results[i].data());
  }
}

void CycleRun::finish() {
  if (!stopping()) end_step();  // a step cut short by anything but the end of the streams is not taken
  const size_t whole = report_.by_epoch.size();  // passes that another one followed
  close_epoch(record_.epoch());
  const bool interrupted = owner_.stop_.load();
  if (report_.stopped_by.empty()) report_.stopped_by = feed_.stream_ended() ? "end of streams" : interrupted ? "interrupt" : "epochs";
  record_.finish(now());
  report_.epochs = static_cast<int64_t>(whole);
  if (report_.by_epoch.size() > whole) {
    const auto samples = static_cast<uint64_t>(report_.by_epoch.back().samples);
    const bool ended = (feed_.stream_ended() || feed_.passes_ended()) && !finished_ && !interrupted;
    report_.epochs += plan_.size > 0 ? samples == plan_.size : ended;
  }
  for (size_t i = 0; i < plan_.producers.size(); ++i)
    if (plan_.reader->left_over(i) > 0)
      report_.notes.push_back(fmt::format("producer '{}' had {} samples left over at the end of a pass", plan_.name_of(plan_.producers[i]), plan_.reader->left_over(i)));
  if (owner_.progress_) owner_.progress_(record_.progress(report_.seconds));
}

}  // namespace harmonics
