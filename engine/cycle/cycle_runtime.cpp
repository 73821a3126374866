#include "engine/cycle/cycle_runtime.hpp"

#include <charconv>
#include <chrono>

#include <fmt/core.h>

#include "engine/bound/recorded_streams.hpp"
#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/cycle_run.hpp"
#include "engine/cycle/last_good.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/product_rates.hpp"

namespace harmonics::engine {

namespace {

double machine_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the least side that the run of the checkpoint rounded.
int64_t recorded_side(const RunState& state, Precision precision) {
  if (precision == Precision::fp32) return 0;
  const auto was = state.routes.find("precision from side");
  if (was == state.routes.end())  // of a checkpoint before sides were recorded
    return usual_least_side(precision == Precision::bf16 ? Rounding::bf16 : Rounding::fp16);
  int64_t side = 0;
  std::from_chars(was->second.data(), was->second.data() + was->second.size(), side);
  return side;
}

}  // namespace

CycleRuntime::CycleRuntime(BoundGraph& graph, int cycle, RunSettings settings)
    : graph_(graph), cycle_(cycle), settings_(std::move(settings)) {
  hooks_.clock = machine_seconds;
  settle_precision(settings_, graph.registry(), settings_.deterministic);
}
CycleRuntime::~CycleRuntime() = default;

void CycleRuntime::resume(Checkpoint c) {
  if (!c.state.not_resumable.empty())
    throw Error(ErrorKind::Usage, fmt::format("'{}' cannot be resumed: {}", c.path, c.state.not_resumable), {},
                {fmt::format("its weights can be used: --weights {}", c.path)});
  const auto recorded = read_recorded_streams(graph_.graph(), c.file.metadata, c.path);
  hooks_.resume_notes = check_recorded(graph_.graph(), recorded, graph_.types(), c.path, OtherShape::begins_anew);
  take_routes(c.state);
  graph_.restore(c.file);
  hooks_.resume = std::move(c);
}

// Uses the precision that `auto` chose in the run of the checkpoint, so that the results stay bitwise the same.
void CycleRuntime::take_routes(const RunState& state) {
  const auto was = state.routes.find("precision");
  if (settings_.precision_reason.empty() || was == state.routes.end()) return;
  const std::string now = precision_name(settings_.precision);
  const bool asked = !state.routes.count("precision chosen");
  DeviceSettings recorded = settings_;
  try {
    recorded.precision = parse_precision(was->second);
    KernelSource(recorded.device, graph_.registry(), recorded.precision);  // throws if the device does not support it
  } catch (const Error&) {
    hooks_.resume_notes.push_back(fmt::format(
        "bits may differ from an uninterrupted run: the checkpoint was trained in {}, which device '{}' does "
        "not compute here; precision auto: {}",
        was->second, settings_.device, now));
    return;
  }
  settings_.precision = recorded.precision;
  settings_.least_side = asked ? 0 : recorded_side(state, settings_.precision);
  if (asked || was->second != now) settings_.precision_reason = asked ? "" : "the checkpoint was trained with it";
  if (was->second != now)
    hooks_.resume_notes.push_back(
        fmt::format("precision auto: {}, as in the checkpoint (without it: {})", was->second, now));
}

void CycleRuntime::declare_parameters() {
  CyclePlan plan(graph_, cycle_, settings_);
  Metrics metrics;
  CyclePrograms programs(plan, metrics, nullptr);
  programs.trace();
  report_.used = programs.used();
  report_.trained = programs.trained();
}

CycleReport CycleRuntime::run() {
  report_ = {};
  report_.precision = precision_name(settings_.precision);
  report_.precision_reason = settings_.precision_reason;
  auto run = std::make_unique<CycleRun>(graph_, cycle_, settings_, hooks_, report_);
  const auto known = [this](CycleRun* now) {
    const std::lock_guard<std::mutex> lock(running_);
    run_ = now;
  };
  known(run.get());
  const auto over = [&] {
    if (hooks_.control) hooks_.control->end(false);
    run->end_steps();
    known(nullptr);
  };
  try {
    run->run();
  } catch (const Error& e) {
    over();
    if (!hooks_.good || hooks_.repeats_until) throw;
    throw repaired(e, std::move(run));
  } catch (...) {
    over();
    throw;
  }
  over();
  forget_copy();
  return report_;
}

void CycleRuntime::forget_copy() {
  const std::lock_guard<std::mutex> lock(hooks_.good_access);
  hooks_.good.reset();
}

// Returns the error with notes that describe the weights. Afterwards all weights are finite.
Error CycleRuntime::repaired(const Error& e, std::unique_ptr<CycleRun> run) {
  const std::string first_non_finite = hooks_.good->first_non_finite(graph_.store());
  std::string why_not = run->why_not_repeated();
  const bool diverged = e.kind() == ErrorKind::Diverged,
             by_numbers = dynamic_cast<const NonFiniteWeights*>(&e) != nullptr;
  const int64_t last = run->step();
  run.reset();  // its streams are opened again
  std::string made, weights;
  int64_t kept = last;
  if (!first_non_finite.empty()) {
    const int64_t copied = hooks_.good->kept().state.step;
    const std::optional<int64_t> good = why_not.empty() ? repeat(last, why_not) : std::nullopt;
    kept = good.value_or(copied);
    if (!good) keep_copy();
    made = good ? fmt::format("step {} had a finite loss but made '{}' infinite", kept + 1, first_non_finite)
                : fmt::format("a step after {} and up to {} had a finite loss but made '{}' infinite", copied, last,
                              first_non_finite);
    if (!good) weights = "; the later ones cannot be repeated: " + why_not;
  }
  weights = fmt::format("the weights are those after step {}, all finite", kept) + weights;
  if (!hooks_.good->never_finite().empty())
    weights = fmt::format("the weights are those after step {}; '{}' was not finite in {} already", kept,
                          *hooks_.good->never_finite().begin(), hooks_.origin);
  forget_copy();
  if (!diverged && first_non_finite.empty()) return e;
  std::vector<std::string> notes = e.notes();
  if (!diverged || !by_numbers)
    notes.insert(notes.begin(), "note: " + (made.empty() ? "" : made + "; ") + weights);
  else
    notes.insert(
        notes.begin(),
        {"note: " + weights,
         "lower the learning rate (run: --lr 1e-4, train: --set learning_rate=1e-4) or look at the data of that step"});
  return Error(e.kind(), by_numbers ? made : e.what(), e.span(), notes);
}

// Repeats the steps since the copy with a check after each. Returns the last step that left all numbers finite; the
// weights are those after it. Returns nothing and sets `why_not` if the steps cannot be repeated.
std::optional<int64_t> CycleRuntime::repeat(int64_t until, std::string& why_not) {
  hooks_.good->put_back(graph_);
  const int64_t resumed_at = report_.resumed_at;
  try {
    CycleRuntime again(graph_, cycle_, settings_);
    again.hooks_.repeats_until = until;
    again.set_clock(hooks_.clock);
    again.on_note([](const std::string&) {});
    again.set_checkpoints(hooks_.checkpoints);
    again.resume(hooks_.good->kept());
    std::vector<RunEvent> events = std::move(report_.events);
    report_ = again.run();
    report_.resumed_at = resumed_at;
    report_.events = std::move(events);
    return report_.steps;
  } catch (const Error& e) {
    why_not = e.what();
    return std::nullopt;
  }
}

// Restores the copy as the result of the run.
void CycleRuntime::keep_copy() {
  hooks_.good->put_back(graph_);
  const Checkpoint& copy = hooks_.good->kept();
  graph_.set_version({cycle_, copy.state.step});
  report_.steps = copy.state.step;
  report_.samples = copy.state.samples;
  if (!hooks_.checkpoints || copy.state.step == 0) return;
  try {
    hooks_.checkpoints->write([&](TensorFile& file) { return file = copy.file, copy.state; });
  } catch (const Error& e) {
    report_.no_checkpoint = e.what();
  }
}

std::shared_ptr<Snapshots> CycleRuntime::snapshots(const std::function<void()>& between) {
  if (in_step_of_this_thread()) return run_ ? run_->snapshots(between) : nullptr;  // run() cannot end during this call
  const std::lock_guard<std::mutex> lock(running_);
  return run_ ? run_->snapshots(between) : nullptr;
}

bool CycleRuntime::configure(const Graph& graph, const std::string& what) {
  if (in_step_of_this_thread()) return run_ && run_->configure(graph, what);  // run() cannot end during this call
  const std::lock_guard<std::mutex> lock(running_);
  return run_ && run_->configure(graph, what);
}

bool CycleRuntime::in_step_of_this_thread() { return StepBoundary::in_turn_of_this_thread(); }

bool CycleRuntime::with_copy(const std::function<void(const TensorFile&)>& take) {
  const std::lock_guard<std::mutex> lock(hooks_.good_access);
  if (!hooks_.good || hooks_.good->kept().state.step == 0) return false;
  TensorFile weights = hooks_.good->kept().file;
  std::erase_if(weights.tensors, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
  take(weights);
  return true;
}

// Writes a checkpoint from the copy of the weights if a validation holds the boundary. Returns whether it did.
bool CycleRuntime::checkpoint_copy() {
  const std::lock_guard<std::mutex> lock(hooks_.good_access);
  if (!hooks_.good_is_last || !hooks_.checkpoints) return false;
  hooks_.checkpoints->write([this](TensorFile& file) { return hooks_.good->copy_to(file); });
  return true;
}

bool CycleRuntime::checkpoint_now() {
  if (checkpoint_copy()) return true;
  const std::lock_guard<std::mutex> lock(running_);
  return run_ && run_->checkpoint_now();
}

}  // namespace harmonics::engine
