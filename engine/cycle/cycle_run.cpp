#include "engine/cycle/cycle_run.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "engine/cycle/cycle_stages.hpp"

namespace harmonics::engine {

CycleRun::CycleRun(BoundGraph& graph, int cycle, const RunSettings& settings, CycleHooks& hooks, CycleReport& report)
    : plan_(graph, cycle, settings),
      report_(report),
      hooks_(hooks),
      record_(plan_, report),
      watch_(plan_, record_),
      programs_(plan_, record_.metrics(), watch_.layer_metrics()),
      cycle_(plan_, report, hooks, record_, watch_, programs_, boundary_),
      rate_(cycle_),
      conditions_(cycle_),
      readers_(cycle_),
      streams_(plan_),
      state_(cycle_, rate_, streams_),
      weights_(cycle_, rate_, state_),
      guard_(cycle_, weights_),
      reload_(cycle_, readers_, weights_),
      checkpoints_(cycle_, rate_, state_, weights_),
      control_(cycle_, rate_, readers_, checkpoints_),
      live_(cycle_, streams_, state_, checkpoints_),
      results_(cycle_) {
  open_streams();
  if (cycle_.resumed())
    checkpoints_.restore();
  else if (plan_.training)
    begin_anew();
  if (plan_.from) cycle_.at.index = plan_.reader->position();
  feed_.emplace(plan_, cycle_.at.epoch, cycle_.at.index);
  rate_.prepare();
  compile();
  if (cycle_.resumed()) {
    checkpoints_.end_restore();
    cycle_.start_clock();
    conditions_.check();  // the restored run may be complete
    conditions_.check_patience();
  }
  weights_.open();
  attach_observers();
  if (!plan_.training && !plan_.graph.graph().cycles[static_cast<size_t>(plan_.cycle)].until.empty())
    cycle_.note("'until' tests training metrics; this cycle has no training tap, so 'until' never ends it");
}

void CycleRun::open_streams() {
  plan_.graph.types();
  for (const std::string& text : plan_.graph.take_stream_notes()) cycle_.note(text);
  if (const auto lengths = plan_.training ? plan_.reader->unequal_lengths() : std::nullopt) cycle_.note(*lengths);
  live_.open();
  checkpoints_.open();
}

// Step numbers restart with every cycle, and the bias correction of moments uses them, so moments are cleared.
void CycleRun::begin_anew() {
  clear_moments(plan_.graph.store());
  plan_.graph.store().forget_expected([](const std::string&) { return true; });
}

void CycleRun::compile() {
  programs_.compile_first(record_.counts());
  if (const std::string hosted = programs_.hosted(); !hosted.empty()) cycle_.note(hosted);
  if (plan_.run.precision == Precision::int8 && !programs_.reads_stored_types())
    cycle_.note("precision int8 changes nothing here: no weight is of a quantized type");
  watch_.prepare();
  for (const std::string& text : watch_.without_window()) cycle_.note(text);
  conditions_.expect_measured();
  feed_->allocate(programs_.result_types());
}

// Attaches only observers with work in this run: empty calls are measurable in the smallest steps.
void CycleRun::attach_observers() {
  observers_.push_back(&reload_);
  if (plan_.training) observers_.push_back(&weights_);
  if (state_.has_unfinished_steps()) observers_.push_back(&state_);
  if (cycle_.keeps()) observers_.push_back(&checkpoints_);
  if (hooks_.control) observers_.push_back(&control_);
  if (streams_.any()) observers_.push_back(&live_);
}

bool CycleRun::configure(const Graph& graph, const std::string& what) {
  const StepBoundary::Visit visit(boundary_);
  if (boundary_.over()) return false;
  reload_.configure(graph, what);
  norm_ = nullptr;  // belonged to the replaced programs
  return true;
}

void CycleRun::name_weights() {
  report_.used = programs_.used();
  report_.trained = programs_.trained();
}

// Weights saved from here on carry this step number.
void CycleRun::name_step() {
  if (plan_.training) plan_.graph.set_version({plan_.cycle, record_.step()});
}

void CycleRun::run() {
  if (hooks_.start)
    hooks_.start(watch_.names(programs_.measured()), {record_.step(), static_cast<int64_t>(record_.epoch())});
  name_weights();
  if (record_.step() > 0) name_step();  // that of the checkpoint
  readers_.offer();
  tell(&CycleObserver::begin);
  cycle_.start_clock();
  step_over_ = feed_clock();
  try {
    run_stages();
    finish();
  } catch (const Error& e) {
    abandon(e);
    throw;
  }
}

void CycleRun::run_stages() {
  CycleStages stages;
  stages.input = [this] { return next_slot(); };
  stages.step = [this](Slot& slot) { take_turn(slot); };
  if (!plan_.wanted.empty()) stages.output = [this](const Slot& slot) { results_.deliver(slot); };
  const std::jthread watch = live_.watch();
  stages.run(plan_.executor.threads());
}

Slot* CycleRun::next_slot() {
  if (cycle_.stopping()) return nullptr;
  return plan_.goes_on ? feed_->next_slot() : feed_->next();
}

void CycleRun::take_turn(Slot& slot) {
  if (plan_.goes_on) fill_between(slot);
  if (slot.count == 0) return;
  // A batch read late because others were in flight delayed no step.
  record_.wait(std::max(0.0, slot.ready - std::max(slot.asked, step_over_)));
  step(slot);
  step_over_ = feed_clock();
}

void CycleRun::fill_between(Slot& slot) {
  slot.count = 0;
  cycle_.filling = true;
  if (!cycle_.stopping()) feed_->fill(slot);
  cycle_.filling = false;
}

void CycleRun::step(Slot& slot) {
  StepBoundary::Turn turn(boundary_);
  if (record_.gathered() == 0 && cycle_.heed_stop()) weights_.keep_last();
  close_part();  // that the stopped run did not validate
  if (!cycle_.stopping() && slot.epoch != record_.epoch()) {
    end_step();
    // If an epoch is interrupted here, the resumed run closes and validates it.
    if (!cycle_.interrupted() && !close_epoch(slot.epoch, cycle_.now(), false)) cycle_.heed_stop();
  }
  if (record_.gathered() == 0 && !cycle_.stopping()) tell(&CycleObserver::before_step, turn);
  if (cycle_.stopping()) {
    slot.count = 0;
    return;
  }
  if (record_.gathered() == 0) {
    guard_.before_step();
    tell(&CycleObserver::step_began);
  }
  if (!run_batch(slot)) return;
  end_ = slot.end;
  reads_ = slot.reads;
  if (record_.gathered() >= (plan_.training ? plan_.settings.accumulate : 1)) end_step();
}

// Returns false if the batch was skipped, or if it was undone and the run is over.
bool CycleRun::run_batch(Slot& slot) {
  const auto count = static_cast<int64_t>(slot.count);
  boundary_.begin_batch();
  readers_.begin_batch();
  if (record_.gathered() == 0) programs_.choose_branches(record_.counts());
  StepProgram& p = programs_.of_batch(count);
  p.step->check_indices(slot.pointers.data());
  tell(&CycleObserver::batch_began, slot);
  if (const Ran ran = run_program(*p.step, slot); ran != Ran::whole) {
    if (ran == Ran::skipped) skip(slot);
    return false;
  }
  norm_ = p.gradient_norm;
  record_.count_batch(p, count);
  if (!programs_.update() && weights_.undo_if_spoilt()) return false;
  watch_.count_batch(p, count);
  results_.keep(p, slot);
  return true;
}

// Drops the batch; the step takes the next one.
void CycleRun::skip(const Slot& slot) {
  record_.drop_batch();
  end_ = slot.end;
  reads_ = slot.reads;
  if (record_.gathered() > 0) return;
  boundary_.end_step();
  readers_.end_step();
}

CycleRun::Ran CycleRun::run_program(CompiledStep& program, const Slot& slot) {
  program.set(slot.pointers.data(), rate_.next(), record_.next_batch(), plan_.settings.seed);
  program.set_keep(record_.gathered() > 0);
  if (!program.loss()) return program.run(), Ran::whole;
  if (program.run_if_finite(guard_.most())) return guard_.passed(), Ran::whole;
  if (guard_.skips(slot, *program.loss())) return Ran::skipped;
  weights_.refuse(program, slot);
  return Ran::undone;
}

// Completes a step after its last batch, that is, of its group or of the pass.
void CycleRun::end_step() {
  if (record_.gathered() == 0) return;
  if (CompiledStep* program = programs_.update()) {
    update(*program);
    if (weights_.undo_if_spoilt()) return;
    norm_ = programs_.norm_of_update();
  }
  if (norm_) record_.put_gradient_norm(*norm_);
  record_.end_step(cycle_.now());
  name_step();
  watch_.end_step();
  boundary_.end_step();
  readers_.end_step();
  cycle_.at.index = end_;
  cycle_.at.reads = reads_;
  conditions_.check();
  report_step();
  cycle_.heed_stop();  // a callback may have requested it
  tell(&CycleObserver::step_ended);
  close_part();
}

// A stream that is read once has no passes, so every so many of its steps are validated like one. The part that ends
// with the run is closed there.
void CycleRun::close_part() {
  if (!plan_.once || !plan_.run.validate_every || !watch_.validates() || record_.gathered() > 0) return;
  if (record_.epoch_steps() < *plan_.run.validate_every || cycle_.stopping()) return;
  if (close_epoch(record_.epoch(), cycle_.now(), false))
    tell(&CycleObserver::epoch_began);
  else
    cycle_.heed_stop();
}

// Applies the gradients accumulated over a group of batches.
void CycleRun::update(CompiledStep& program) {
  program.set(nullptr, rate_.next(), record_.step() + 1, plan_.settings.seed);
  const std::vector<size_t>& parts = programs_.gathered_parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const double counted = record_.gathered_weight(parts[i]);
    program.set_scale(counted > 0 ? static_cast<float>(static_cast<double>(plan_.batch) / counted) : 0, i);
  }
  program.run();
}

void CycleRun::report_step() {
  if (hooks_.every > 0 && record_.step() % hooks_.every == 0) {
    watch_.read_windows();
    StepReport report = record_.step_report(hooks_.every);
    report.products = programs_.products_of_sample();
    hooks_.step(report);
  }
  if (hooks_.pause_every > 0 && record_.step() % hooks_.pause_every == 0) {
    const double begun = cycle_.now();
    hooks_.pause(record_.step_report(hooks_.pause_every));
    record_.set_aside(cycle_.now() - begun);
  }
  if (hooks_.progress && record_.now() >= next_progress_) {
    next_progress_ = record_.now() + 0.1;
    hooks_.progress(progress(record_.now()));
  }
}

Progress CycleRun::progress(double now, double later) {
  Progress p = record_.progress(now, later);
  p.products = programs_.products_of_sample();
  return p;
}

// `cut`: the run ends early, so it does not validate. Returns false if a stop request ended the validation. Then
// nothing has changed, and a resumed run closes and validates the epoch.
bool CycleRun::close_epoch(uint64_t next, double now, bool cut) {
  std::optional<Evaluation> validation;
  const bool repeats = hooks_.repeats_until && watch_.validates_live();  // the samples were read before
  if (watch_.validates() && !cut && !repeats && record_.has_epoch()) {
    validation = validate();
    if (!validation && cycle_.stop_requested()) {
      unvalidated_at_ = now;
      return false;
    }
    if (!validation || validation->samples == 0) {
      tell_unvalidated();
      validation.reset();
    }
  }
  if (EpochReport* closed = record_.close_epoch(next, now)) {
    watch_.close_epoch(*closed, std::move(validation));
    const double later = closed->validation ? closed->validation->seconds : 0;
    const Progress reached = hooks_.epoch ? progress(now, later) : record_.progress(now, later);
    if (hooks_.epoch) hooks_.epoch(*closed, reached);
    tell(&CycleObserver::epoch_closed, *closed, reached);
    conditions_.check_metrics();
    conditions_.check_patience();
  }
  if (next == cycle_.at.epoch) return true;
  cycle_.at.epoch = next;
  cycle_.at.index = 0;
  tell(&CycleObserver::epoch_began);
  return true;
}

// Tells once that a validation got no samples: its live streams or the time of the run ended.
void CycleRun::tell_unvalidated() {
  if (std::exchange(told_unvalidated_, true)) return;
  cycle_.note(fmt::format("the validation data ended; there is no validation from step {} on", record_.step()));
}

// During the validation other threads can read the copy of the weights and write checkpoints from it.
std::optional<Evaluation> CycleRun::validate() {
  struct Offered {
    explicit Offered(FiniteWeights& of) : weights(of) { weights.offer_copy(true); }
    ~Offered() { weights.offer_copy(false); }
    FiniteWeights& weights;
  };
  weights_.keep_last();
  const Offered copy(weights_);
  const std::optional<double>& limit = plan_.settings.seconds;
  if (!watch_.validates_live() || !limit) return watch_.validate([this] { return cycle_.stop_requested(); });
  return watch_.validate([&] { return cycle_.stop_requested() || cycle_.now() >= *limit; });
}

void CycleRun::finish() {
  if (!cycle_.stopping()) {  // the streams ended within a step
    const StepBoundary::Turn turn(boundary_);
    end_step();
  }
  // The steps are final. From here on a stop request ends only the validation.
  const bool interrupted = report_.stopped_by == "interrupt";
  const double end = unvalidated_at_ ? *unvalidated_at_ : cycle_.now();
  tell(&CycleObserver::steps_ended);
  boundary_.end();
  const double aside = record_.aside();
  report_end(end, interrupted);
  tell(&CycleObserver::run_ended);
  report_streams();
  if (hooks_.progress) {
    report_.products = programs_.products_of_sample();
    hooks_.progress(progress(report_.seconds, record_.aside() - aside));
  }
  if (plan_.goes_on && (!interrupted || plan_.run.goes_on)) live_.hand_over();
}

void CycleRun::report_end(double end, bool interrupted) {
  const int64_t closed = record_.closed_epochs();
  const double aside = record_.aside();
  const int64_t whole = plan_.once ? 0 : closed;  // passes followed by another one
  if (!close_epoch(record_.epoch(), end, interrupted || hooks_.repeats_until)) {
    report_.stopped_by = "interrupt";
    close_epoch(record_.epoch(), end, true);
  }
  if (report_.stopped_by.empty()) report_.stopped_by = feed_->stream_ended() ? "end of streams" : "epochs";
  watch_.read_windows();
  record_.finish(end, record_.aside() - aside);
  name_weights();  // more branches may have been compiled
  report_.epochs = whole;
  if (record_.closed_epochs() == closed && !(plan_.once && closed > 0)) return;
  const auto samples = static_cast<uint64_t>(plan_.once ? report_.samples : report_.by_epoch.back().samples);
  const bool ended = (feed_->stream_ended() || feed_->passes_ended()) && !cycle_.finished() && !interrupted;
  report_.epochs += plan_.size > 0 ? samples == plan_.size : ended;
}

void CycleRun::report_streams() {
  for (const std::string& text : results_.notes()) cycle_.note(text);
  report_.left_over = plan_.reader->left_over();
  for (const LeftOver& left : report_.left_over) report_.notes.push_back(left.text);
  for (size_t i = 0; i < plan_.producers.size(); ++i) {
    if (const std::string text = plan_.reader->counts(i).text(); !text.empty())
      report_.notes.push_back(fmt::format("samples of '{}': {}", plan_.name_of(plan_.producers[i]), text));
  }
}

void CycleRun::abandon(const Error& e) {
  tell(&CycleObserver::step_dropped);
  record_.drop_step();
  tell(&CycleObserver::run_failed, e);
  report_.stopped_by = e.kind() == ErrorKind::Diverged ? "not finite" : "error";
  record_.finish(record_.now());
  report_.epochs = plan_.once ? 0 : record_.closed_epochs();
}

}  // namespace harmonics::engine
