#include "engine/cycle/cycle_plan.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include <harmonics/checked.hpp>

namespace harmonics::engine {

namespace {

constexpr int64_t kDefaultEpochs = 10;

// Returns the number of passes if the settings have none: without a limit if a condition ends the run, else ten for
// training and one for inference. Inference ignores `until`, because it measures nothing that `until` could test.
int64_t planned_epochs(const ResolvedSettings& settings, bool training) {
  const bool conditions = settings.steps || settings.seconds || (training && !settings.until.empty());
  return settings.epochs.value_or(conditions ? -1 : training ? kDefaultEpochs : 1);
}

// Refuses settings that depend on the clock or on the arrival of samples: a deterministic run is bitwise repeatable.
void refuse_what_varies(const CyclePlan& plan) {
  if (plan.settings.seconds)
    throw Error(ErrorKind::Usage,
                "a deterministic run cannot end by a time limit: the number of steps until then varies", {},
                {"give --steps or --epochs instead of a time, or remove --deterministic"});
  if (plan.training && plan.run.guard && plan.run.guard->returns)
    throw Error(ErrorKind::Usage, "a deterministic run cannot return to its last checkpoint: when it is written varies",
                {}, {"let the loss guard end the run (then=stop), or remove --deterministic"});
  for (const GraphConditional& c : plan.graph.graph().conditionals)
    if (c.cycle == plan.cycle && c.predicate && (c.predicate->item->flags & HX_BY_CLOCK))
      throw Error(ErrorKind::Usage,
                  fmt::format("a deterministic run cannot use predicate '{}': it depends on more than the run",
                              c.predicate->item->name),
                  c.predicate->span, {"decide by a metric or another predicate, or remove --deterministic"});
  for (int n : plan.producers)
    if (plan.graph.streams().source(n).info().live)
      throw Error(
          ErrorKind::Usage,
          fmt::format("a deterministic run cannot read the live stream '{}': arrival times vary", plan.name_of(n)), {},
          {"record it to a file and read that, or remove --deterministic"});
}

// Returns the first live stream that both cycles read, or -1.
int live_in_both(BoundGraph& graph, const std::vector<int>& a, const std::vector<int>& b) {
  for (int n : a)
    if (graph.streams().bound(n) && graph.streams().source(n).info().live &&
        std::find(b.begin(), b.end(), n) != b.end())
      return n;
  return -1;
}

}  // namespace

void expect_validation(BoundGraph& graph, int cycle, const ResolvedSettings& settings) {
  if (!graph.graph().trains(cycle) || !graph.validation_streams().empty()) return;
  const auto check = [](const char* word, const Comparison& c) {
    if (c.metric.rfind("val.", 0) == 0)
      throw Error(ErrorKind::Usage, fmt::format("'{} {}' can never hold: there is no validation data", word, c.metric),
                  c.span, {"give it: --validate NAME=ADDRESS for every producer"});
  };
  if (settings.patience)
    throw Error(ErrorKind::Usage,
                fmt::format("patience of {} can never end: there is no validation data", *settings.patience), {},
                {"give it: --validate NAME=ADDRESS for every producer"});
  for (const Comparison& c : settings.until) check("until", c);
  for (const GraphConditional& c : graph.graph().conditionals)
    if (!c.predicate && c.cycle == cycle) check("if", c.metric);
}

CyclePlan::CyclePlan(BoundGraph& harmonic, int number, const RunSettings& settings_of_run)
    : graph(harmonic),
      cycle(number),
      run(settings_of_run),
      settings(graph.settings(cycle, run)),
      training(graph.graph().trains(cycle)),
      executor(graph.executor(run.threads)) {
  const Graph& g = graph.graph();
  producers = g.producers_used(cycle, training);
  if (producers.empty()) throw Error(ErrorKind::Usage, fmt::format("no producer feeds this cycle of '{}'", g.name));
  for (int n : producers)
    if (!graph.streams().bound(n))
      throw Error(ErrorKind::Usage, fmt::format("producer '{}' is not bound", name_of(n)), {},
                  {fmt::format("bind it: --producer {}=file:PATH", name_of(n))});
  for (int n : graph.results(cycle))
    if (graph.sinks().count(is_consumer(n) ? n : -1) && (is_consumer(n) || !training)) wanted.push_back(n);
  for (int n : producers) live = live || graph.streams().source(n).info().live;
  for (int n : producers) once = once || graph.streams().source(n).once();
  if (live) check_going_on();
  goes_on = goes_on || (once && run.goes_on);
  take_reader();
  constexpr int64_t kWindow = 1000;
  if (training) window = run.window.value_or(live ? kWindow : 0);
  size = reader->size();
  batch = size > 0 ? std::min<uint64_t>(size, static_cast<uint64_t>(settings.batch))
                   : static_cast<uint64_t>(settings.batch);
  epochs = planned_epochs(settings, training);
  if (run.deterministic) refuse_what_varies(*this);
  if (from) reader->set_batch(batch);
}

// Streams that can be read only once keep their reader from cycle to cycle, because edge threads read live streams
// between cycles too.
void CyclePlan::take_reader() {
  std::optional<LiveReading>& former = graph.live_reading();
  if (once && former && former->producers == producers) {
    from = std::exchange(former, std::nullopt);
    reader = std::move(from->reader);
  } else {
    reader = graph.streams().reader(graph.graph(), producers, static_cast<uint64_t>(settings.batch),
                                    training && run.shuffle, settings.seed, settings.unpaired);
  }
}

// A live stream is read once, so each cycle that reads it continues where the previous one stopped.
void CyclePlan::check_going_on() {
  const Graph& g = graph.graph();
  for (size_t later = static_cast<size_t>(cycle) + 1; later < g.cycles.size(); ++later) {
    const std::vector<int> others = g.producers_used(static_cast<int>(later), g.trains(static_cast<int>(later)));
    const int both = live_in_both(graph, producers, others);
    if (both < 0) continue;
    if (others != producers)
      throw Error(ErrorKind::Usage,
                  fmt::format("cycles {} and {} share the live stream '{}' but read different producers, so the "
                              "position after cycle {} is undefined",
                              cycle + 1, later + 1, name_of(both), cycle + 1),
                  {}, {"let both cycles use the same producers, or record the stream to a file and read that"});
    if (settings.seconds)
      throw Error(ErrorKind::Usage,
                  fmt::format("cycle {} cannot end by a time limit, because cycle {} continues the live stream '{}'",
                              cycle + 1, later + 1, name_of(both)),
                  {}, {"end it with steps or until"});
    goes_on = true;
  }
}

Horizon CyclePlan::horizon() const {
  Horizon h{settings.steps, settings.seconds.has_value()};
  if (epochs < 0 || size == 0) return h;
  const auto up = [](uint64_t a, uint64_t b) { return a / b + (a % b != 0); };
  // A number of steps that overflows counts as endless.
  constexpr int64_t endless = std::numeric_limits<int64_t>::max();
  const uint64_t in_epoch = up(up(size, batch), static_cast<uint64_t>(settings.accumulate));
  const int64_t steps =
      in_epoch > endless ? endless : checked_product(epochs, static_cast<int64_t>(in_epoch)).value_or(endless);
  h.steps = std::min(h.steps.value_or(steps), steps);
  return h;
}

}  // namespace harmonics::engine
