#include "engine/cycle/cycle_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include <fmt/core.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/task_arena.h>

#include "engine/bound/not_finite.hpp"
#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/last_good.hpp"

namespace harmonics::engine {

namespace {

thread_local const CycleRun* in_step = nullptr;  // the run whose step this thread executes

// Marks that this thread holds the boundary between two steps, or runs a step.
class InStep {
 public:
  explicit InStep(const CycleRun* run) { in_step = run; }
  ~InStep() { in_step = nullptr; }
};

// Counted before the thread waits for anything: a step that misses it ends without a notification, and the next one
// sees it.
class Asking {
 public:
  explicit Asking(std::atomic<int>& threads) : threads_(threads) { threads_.fetch_add(1); }
  ~Asking() { threads_.fetch_sub(1); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::atomic<int>& threads_;
};

}  // namespace

bool CycleRun::in_step_of_this_thread() { return in_step != nullptr; }

CycleRun::CycleRun(CycleRuntime& owner, CycleReport& report)
    : owner_(owner),
      report_(report),
      plan_(owner.graph_, owner.cycle_, owner.settings_),
      live_(plan_),
      record_(plan_, report),
      watch_(plan_, record_),
      programs_(plan_, record_.metrics(), watch_.judge()),
      finite_(plan_) {
  plan_.graph.types();
  for (const std::string& text : plan_.graph.take_stream_notes()) note(text);
  if (const auto lengths = plan_.training ? plan_.reader->unequal_lengths() : std::nullopt) note(*lengths);
  begin_live();
  if (keeps() && !resumed()) plan_.graph.expect_savable();
  if (keeps() && !plan_.from) tell_resumable();
  if (keeps()) told_checkpoint_ = owner_.checkpoints_->last();  // of another run, or of this one earlier
  if (const RunState* from = resumed()) {
    owner_.origin_ = owner_.resume_->path;
    epoch_ = from->epoch;
    index_ = from->index;
    before_ = from->seconds;
    rate_set_ = told_rate_ = from->learning_rate_set;
    report_.resumed_at = from->step;
    record_.restore(*from);
    watch_.restore(*from);
  } else if (plan_.training) {
    forget_moments();
  }
  if (plan_.from) index_ = plan_.reader->position();
  feed_.emplace(plan_, epoch_, index_);
  if (plan_.training) {
    rate_.emplace(plan_.settings.schedule, plan_.settings.optimizer.lr, plan_.horizon());
    if (const auto note = rate_->note()) report_.notes.push_back(*note);
  }
  programs_.compile_first(record_.counts());
  if (const std::string hosted = programs_.hosted(); !hosted.empty()) note(hosted);
  watch_.prepare();
  for (const std::string& text : watch_.without_window()) note(text);
  check_conditions_measured();
  feed_->allocate(programs_.result_types());
  if (resumed()) go_on();
  if (plan_.training) owner_.good_ = std::make_unique<LastGood>(plan_.graph.store());
  if (!plan_.training && !plan_.graph.graph().cycles[static_cast<size_t>(plan_.cycle)].until.empty())
    note("'until' looks at what training measures; this cycle has no training tap, so it does not end by it");
}

void CycleRun::run() {
  namespace flow = oneapi::tbb::flow;
  oneapi::tbb::task_arena arena(std::max(1, plan_.executor.threads()));
  if (owner_.start_)
    owner_.start_(watch_.names(programs_.measured()), {record_.step(), static_cast<int64_t>(record_.epoch())});
  name_weights();
  keep_snapshots();
  begin_control();
  start_ = owner_.clock_();
  step_over_ = feed_clock();
  keep_good();
  const auto flow_graph = [&] {
    flow::graph g;
    flow::input_node<Slot*> input(g, [this](oneapi::tbb::flow_control& control) {
      Slot* slot = stopping() ? nullptr : plan_.goes_on ? feed_->next_slot() : feed_->next();
      if (!slot) control.stop();
      return slot;
    });
    flow::limiter_node<Slot*> limiter(g, CycleFeed::kInFlight);
    const auto take_turn = [this](Slot& slot) {
      if (plan_.goes_on) fill_between(slot);
      if (slot.count > 0) this->step(slot);
    };
    flow::make_edge(input, limiter);
    if (plan_.wanted.empty()) {  // nothing to deliver: the step is the last stage
      flow::function_node<Slot*, flow::continue_msg> step(
          g, flow::serial, [&](Slot* slot) { return take_turn(*slot), flow::continue_msg(); });
      flow::make_edge(limiter, step);
      flow::make_edge(step, limiter.decrementer());
      input.activate();
      return g.wait_for_all();
    }
    flow::function_node<Slot*, Slot*> step(g, flow::serial, [&](Slot* slot) { return take_turn(*slot), slot; });
    // A serial node may start its next message before it has passed on the last, so the order is restored by number.
    flow::sequencer_node<Slot*> in_order(g, [](Slot* slot) { return slot->sequence; });
    flow::function_node<Slot*, flow::continue_msg> sink(
        g, flow::serial, [this](Slot* slot) { return deliver(*slot), flow::continue_msg(); });
    flow::make_edge(limiter, step);
    flow::make_edge(step, in_order);
    flow::make_edge(in_order, sink);
    flow::make_edge(sink, limiter.decrementer());
    input.activate();
    g.wait_for_all();
  };
  try {
    {
      const std::jthread watch =
          live_.any() ? std::jthread([this](const std::stop_token& over) { watch_live(over); }) : std::jthread();
      arena.execute(flow_graph);
    }
    finish();
  } catch (const Error& e) {
    abandon(e);
    throw;
  }
}

void CycleRun::name_weights() {
  report_.used = programs_.used();
  report_.trained = programs_.trained();
}

void CycleRun::fill_between(Slot& slot) {
  slot.count = 0;
  filling_ = true;
  if (!stopping()) feed_->fill(slot);
  filling_ = false;
}

// Step numbers restart with every cycle, so the moments whose bias correction uses them are cleared too.
void CycleRun::forget_moments() {
  ParameterStore& store = plan_.graph.store();
  for (const auto& [name, t] : store.all())
    if (t.role == Role::moment) std::memset(store.find(name)->change(), 0, t.type.bytes());
  store.forget_expected([](const std::string&) { return true; });
}

// Returns "f1" for "val.output.f1", or an empty string if no metric on request reports the figure.
std::string CycleRun::metric_to_ask_for(std::string figure) const {
  for (const std::string_view prefix : {"val.", "window."})
    if (figure.starts_with(prefix)) figure.erase(0, prefix.size());
  if (const size_t dot = figure.find('.');
      dot != std::string::npos && plan_.graph.graph().find(figure.substr(0, dot)) >= 0)
    figure.erase(0, dot + 1);
  return figure == "accuracy" ? "" : metric_giving(plan_.graph.registry(), figure);
}

// A condition on a metric that no step of this cycle measures would never hold.
void CycleRun::check_conditions_measured() const {
  if (!plan_.training) return;
  expect_validation(plan_.graph, plan_.cycle, plan_.settings);
  const std::vector<std::string> names = watch_.names(programs_.measured());
  const auto check = [&](const char* word, const Comparison& c) {
    if (std::find(names.begin(), names.end(), c.metric) != names.end()) return;
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    Error e(ErrorKind::Name,
            fmt::format("'{} {}' can never hold: this cycle does not measure '{}'", word, c.metric, c.metric), c.span,
            {"it measures " + known});
    if (const std::string metric = metric_to_ask_for(c.metric); !metric.empty())
      e.note(fmt::format("it is measured when it is asked for: --metric '{}'", metric));
    throw e;
  };
  for (const Comparison& c : plan_.settings.until) check("until", c);
  for (const GraphConditional& c : plan_.graph.graph().conditionals)
    if (!c.predicate && c.cycle == plan_.cycle) check("if", c.metric);
}

bool CycleRun::stopping() const {
  return finished_.load(std::memory_order_relaxed) || plan_.epochs == 0 || plan_.settings.steps.value_or(1) <= 0;
}

void CycleRun::step(Slot& slot) {
  // A batch that was read late because others were in flight did not delay any step.
  if (slot.count > 0) record_.wait(std::max(0.0, slot.ready - std::max(slot.asked, step_over_)));
  run_step(slot);
  step_over_ = feed_clock();
}

void CycleRun::run_step(Slot& slot) {
  if (asking_.load(std::memory_order_acquire) > 0) {
    const std::lock_guard<std::mutex> after_those(turn_);
  }
  std::unique_lock<std::mutex> lock(stepping_);
  const InStep here(this);
  if (record_.gathered() == 0 && owner_.stop_.load(std::memory_order_relaxed)) finish_because("interrupt");
  if (!stopping() && slot.epoch != record_.epoch()) {
    end_step();
    // An epoch that is interrupted here is closed and validated by the resumed run.
    if (!interrupted_.load(std::memory_order_relaxed)) close_epoch(slot.epoch, now(), false);
  }
  if (owner_.control_ && !stopping() && record_.gathered() == 0) wait_while_paused(lock);
  if (stopping()) {
    slot.count = 0;
    return;
  }
  if (record_.gathered() == 0 && owner_.reload_.exchange(false, std::memory_order_relaxed)) {
    reload_plugins();
    keep_good();
  }
  if (controlled_ && record_.gathered() == 0 && owner_.good_ && rate_set() != kept_rate_) keep_good();
  if (plan_.training && plan_.settings.accumulate > 1 && record_.gathered() == 0) remember_states();
  if (!run_batch(slot)) return;
  end_ = slot.end;
  reads_ = slot.reads;
  if (record_.gathered() >= (plan_.training ? plan_.settings.accumulate : 1)) end_step();
}

// Returns false if the batch was undone and the run is over.
bool CycleRun::run_batch(Slot& slot) {
  in_batch_ = true;
  if (snapshots_) snapshots_->begin();
  if (record_.gathered() == 0) programs_.choose_branches(record_.counts());
  StepProgram& p = programs_.of_batch(static_cast<int64_t>(slot.count));
  CompiledStep& program = *p.step;
  program.check_indices(slot.pointers.data());
  if (owner_.control_ && owner_.control_->wants_sample()) give_sample(slot);
  program.set(slot.pointers.data(), next_rate(), record_.next_batch(), plan_.settings.seed);
  program.set_keep(record_.gathered() > 0);
  if (program.loss()) {
    if (!program.run_if_finite()) {
      if (owner_.repeats_until_) return in_batch_ = false, undo_step();
      diverged(program, slot);
    }
  } else {
    program.run();
  }
  record_.count_batch(p, static_cast<int64_t>(slot.count));
  if (!programs_.update() && undo_if_spoilt()) return in_batch_ = false;
  watch_.count_batch(p, static_cast<int64_t>(slot.count));
  for (size_t i = 0; i < plan_.wanted.size(); ++i) {
    slot.delivers[i] = p.results[i] != nullptr;
    if (!p.results[i]) continue;
    const TensorType& type = *programs_.result_types()[i];
    std::memcpy(slot.results[i].data(), p.results[i]->bytes(), type.bytes() * slot.count);
    if (!owner_.repeats_until_) finite_.look(i, type, slot);
  }
  in_batch_ = false;
  return true;
}

float CycleRun::next_rate() {
  const std::optional<double> set = rate_set();
  if (set != told_rate_) {
    told_rate_ = set;
    event("learning_rate", told_rate_ ? fmt::format("the learning rate was set to {:g}", *told_rate_)
                                      : "the learning rate is the schedule's again");
  }
  if (rate_ && set)
    report_.learning_rate = *set;
  else if (rate_)
    report_.learning_rate =
        rate_->at(record_.step(), plan_.settings.seconds ? record_.now() / *plan_.settings.seconds : 0);
  return static_cast<float>(report_.learning_rate);
}

// Called after the last batch of a step, that is, of its group or of the pass.
void CycleRun::end_step() {
  if (record_.gathered() == 0) return;
  if (CompiledStep* update = programs_.update()) {
    update->set(nullptr, next_rate(), record_.step() + 1, plan_.settings.seed);
    const std::vector<size_t>& parts = programs_.gathered_parts();
    for (size_t i = 0; i < parts.size(); ++i) {
      const double counted = record_.gathered_weight(parts[i]);
      update->set_scale(counted > 0 ? static_cast<float>(static_cast<double>(plan_.batch) / counted) : 0, i);
    }
    update->run();
    if (undo_if_spoilt()) return;
  }
  record_.end_step(now());
  watch_.end_step();
  if (snapshots_) snapshots_->end(record_.step());
  index_ = end_;
  live_.use(reads_);
  check_conditions();
  tell_step();
  if (owner_.stop_.load(std::memory_order_relaxed)) finish_because("interrupt");
  if (owner_.good_ && (owner_.repeats_until_ || owner_.good_->due(record_.now()))) keep_good();
  checkpoint_if_due(false);
  if (owner_.control_) tell_control();
  if (asking_.load(std::memory_order_acquire) > 0) stepped_.notify_all();
}

void CycleRun::check_conditions() {
  const ResolvedSettings& s = plan_.settings;
  if (owner_.repeats_until_ && record_.step() >= *owner_.repeats_until_) finish_because("not finite");
  if (owner_.stop_.load(std::memory_order_relaxed)) finish_because("interrupt");
  if (s.steps && record_.step() >= *s.steps) finish_because("steps");
  if (s.seconds && !owner_.repeats_until_ && record_.now() >= *s.seconds) finish_because("for");
  check_metrics();
}

void CycleRun::tell_step() {
  if (owner_.every_ > 0 && record_.step() % owner_.every_ == 0) {
    watch_.read_windows();
    owner_.step_(record_.step_report());
  }
  if (owner_.progress_ && record_.now() >= next_progress_) {
    next_progress_ = record_.now() + 0.1;
    owner_.progress_(record_.progress(record_.now()));
  }
}

// Returns the weights for readers beside the run. `between` runs first, while no step runs.
std::shared_ptr<Snapshots> CycleRun::snapshots(const std::function<void()>& between) {
  std::optional<Asking> asking;
  std::unique_lock<std::mutex> turn(turn_, std::defer_lock), lock(stepping_, std::defer_lock);
  if (in_step == this) {  // this thread holds the boundary: a callback after a step, or a function within one
    if (in_batch_ || record_.gathered() > 0)
      throw Error(ErrorKind::Usage,
                  "infer() is called by a function that the running step calls, where weights are between two states",
                  {}, {"ask at the end of a step, or from another thread"});
  } else {
    asking.emplace(asking_);
    turn.lock();
    lock.lock();
    turn.unlock();
    stepped_.wait(lock, [&] { return over_ || record_.gathered() == 0; });
  }
  if (over_) return nullptr;
  between();
  if (!snapshots_) {
    snapshots_ = std::make_shared<Snapshots>(plan_.graph.store(), WeightsVersion{plan_.cycle, record_.step()});
    snapshots_->attach(stepping_);
  }
  if (in_step == this) snapshots_->settle();
  return snapshots_;
}

void CycleRun::check_metrics() {
  for (const Comparison& c : plan_.settings.until)
    if (record_.metrics().holds(c)) finish_because(fmt::format("until {} {} {:g}", c.metric, c.op, c.value));
}

bool CycleRun::finish_because(std::string reason) {
  if (finished_.exchange(true)) return false;
  if (reason == "interrupt") interrupted_.store(true, std::memory_order_relaxed);
  report_.stopped_by = std::move(reason);
  return true;
}

// `cut` means that the run ends early, so it does not validate.
void CycleRun::close_epoch(uint64_t next, double now, bool cut) {
  EpochReport* closed = record_.close_epoch(next, now);
  if (closed) {
    watch_.close_epoch(*closed, cut);
    if (owner_.epoch_) owner_.epoch_(*closed, record_.progress(now));
    if (owner_.control_) owner_.control_->end_epoch(row_of(*closed, record_.progress(now)));
    check_metrics();
  }
  if (next == epoch_) return;
  epoch_ = next;
  index_ = 0;
  checkpoint_if_due(true);
}

void CycleRun::diverged(const CompiledStep& program, const Slot& slot) {
  LoweringOptions o = programs_.options(static_cast<int64_t>(slot.count));
  o.observe = true;
  const NotFinite step{plan_.graph,
                       plan_.producers,
                       slot.pointers,
                       static_cast<int64_t>(slot.count),
                       record_.step(),
                       slot.epoch + 1,
                       *program.loss(),
                       spoilt(),
                       owner_.good_ && !owner_.good_->never_finite().empty()};
  throw not_finite(step, o, plan_.executor, plan_.run);
}

void CycleRun::deliver(const Slot& slot) {
  if (slot.count == 0 || owner_.repeats_until_) return;
  for (size_t i = 0; i < plan_.wanted.size(); ++i) {
    if (!slot.delivers[i]) continue;
    const TensorType& type = *programs_.result_types()[i];
    const int n = plan_.wanted[i];
    plan_.graph.sinks()
        .at(plan_.is_consumer(n) ? n : -1)
        ->push(type.dtype, type.shape, slot.count, slot.results[i].data());
  }
}

void CycleRun::end_steps() {
  {
    const std::lock_guard<std::mutex> lock(stepping_);
    over_ = true;
  }
  stepped_.notify_all();
}

void CycleRun::finish() {
  if (!stopping()) {  // the streams ended within a step
    const std::lock_guard<std::mutex> lock(stepping_);
    const InStep here(this);
    end_step();
  }
  expect_finite();
  // The steps are final from here on. A stop request now changes nothing: the run still ends with its checkpoint and
  // validation.
  const bool interrupted = report_.stopped_by == "interrupt", cut = interrupted || owner_.repeats_until_;
  const double end = now();
  if (keeps() && (!owner_.repeats_until_ || record_.step() > 0)) last_checkpoint();
  end_steps();
  const int64_t whole = record_.closed_epochs();  // passes that were followed by another
  close_epoch(record_.epoch(), end, cut);
  if (report_.stopped_by.empty()) report_.stopped_by = feed_->stream_ended() ? "end of streams" : "epochs";
  watch_.read_windows();
  record_.finish(end);
  name_weights();  // branches may have been compiled since
  report_.epochs = whole;
  if (record_.closed_epochs() > whole) {
    const auto samples = static_cast<uint64_t>(report_.by_epoch.back().samples);
    const bool ended = (feed_->stream_ended() || feed_->passes_ended()) && !finished_ && !interrupted;
    report_.epochs += plan_.size > 0 ? samples == plan_.size : ended;
  }
  tell_lost();
  for (const std::string& text : finite_.notes()) note(text);
  report_.left_over = plan_.reader->left_over();
  for (const LeftOver& left : report_.left_over) report_.notes.push_back(left.text);
  for (size_t i = 0; i < plan_.producers.size(); ++i) {
    if (const std::string text = plan_.reader->counts(i).text(); !text.empty())
      report_.notes.push_back(fmt::format("samples of '{}': {}", plan_.name_of(plan_.producers[i]), text));
  }
  if (owner_.progress_) owner_.progress_(record_.progress(report_.seconds));
  if (plan_.goes_on && (!interrupted || plan_.run.goes_on)) leave_live();
}

}  // namespace harmonics::engine
