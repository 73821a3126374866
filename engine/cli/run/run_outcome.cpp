#include "engine/cli/run/run_outcome.hpp"

#include <algorithm>
#include <cmath>

#include <boost/json.hpp>
#include <fmt/format.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/run/pictures.hpp"
#include "engine/cli/run/report.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/measure/examples.hpp"

namespace harmonics::engine::cli {

namespace {

// The run reports that steps waited for data above this share of the time and these seconds.
constexpr double kWaitShare = 0.25, kWaitTold = 0.1;

struct WeightCounts {
  int64_t trained = 0;
  int64_t frozen = 0;  // used, but not trained
  int64_t unused = 0;  // loaded, but not used
  int64_t all() const { return trained + frozen + unused; }
};

// Counts weights by the names of the used and trained parameters.
WeightCounts count_weights(const ParameterStore& store, const std::set<std::string>& used,
                           const std::set<std::string>& trained) {
  WeightCounts counts;
  for (const auto& [name, t] : store.all()) {
    if (t.role != Role::weight && t.role != Role::frozen) continue;
    (trained.count(name) ? counts.trained : used.count(name) ? counts.frozen : counts.unused) += t.type.shape.count();
  }
  return counts;
}

// Returns "1,290 weights (214,080 frozen, 1,290 unused)".
std::string weights_text(const WeightCounts& counts) {
  std::string rest;
  if (counts.frozen > 0) rest = thousands(counts.frozen) + " frozen";
  if (counts.unused > 0) rest += (rest.empty() ? "" : ", ") + thousands(counts.unused) + " unused";
  return thousands(counts.trained) + " weights" + (rest.empty() ? "" : " (" + rest + ")");
}

std::string loss_text(const CycleReport& report) {
  std::string s = fmt::format("loss {:.4g}", report.loss);
  if (report.accuracy >= 0) s += ", accuracy " + percent(report.accuracy);
  return s;
}

// Returns null for an unmeasured value, and for infinity and NaN, which JSON cannot represent.
boost::json::value json_of(double value, bool measured = true) {
  return measured && std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
}

boost::json::object json_of(const std::map<std::string, double>& values) {
  boost::json::object o;
  for (const auto& [name, value] : values) o[name] = json_of(value);
  return o;
}

// Returns the last validated epoch, if any.
const EpochReport* validated(const CycleReport& report) {
  for (auto it = report.by_epoch.rbegin(); it != report.by_epoch.rend(); ++it)
    if (it->validation) return &*it;
  return nullptr;
}

// Returns the remainders of streams after the last passes, by purpose of the streams.
boost::json::array left_over_of(const RunOutcome& outcome) {
  boost::json::array all;
  const auto add = [&](const char* of, const std::vector<LeftOver>& streams) {
    for (const LeftOver& left : streams)
      all.push_back(boost::json::object{{"of", of}, {"producer", left.producer}, {"samples", left.samples}});
  };
  add("run", outcome.report.left_over);
  if (const Evaluation* validation = validation_of(outcome.report)) add("validation", validation->left_over);
  if (outcome.test) add("test", outcome.test->left_over);
  return all;
}

boost::json::array dead_letters_json(BoundGraph& graph) {
  boost::json::array all;
  if (const DeadLetters* const letters = graph.streams().dead_letters())
    for (const DeadLetters::Kept& kept : letters->kept())
      all.push_back(boost::json::object{{"producer", kept.stream},
                                        {"why", kept.refused ? "refused" : "unpaired"},
                                        {"samples", kept.samples},
                                        {"files", boost::json::value_from(kept.files)}});
  return all;
}

boost::json::object figures_json(BoundGraph& graph, const RunOutcome& outcome) {
  const ParameterStore& store = graph.store();
  const CycleReport& r = outcome.report;
  boost::json::object o;
  o["version"] = 1;
  o["graph"] = graph.graph().name;
  o["epochs"] = r.epochs;
  o["steps"] = r.steps;
  o["samples"] = r.samples;
  o["seconds"] = json_of(r.seconds);
  o["samples_per_second"] = json_of(r.samples_per_second);
  o["loss"] = json_of(r.loss, outcome.trained && r.steps > 0);
  o["accuracy"] = json_of(r.accuracy, r.accuracy >= 0);
  o["test_loss"] = json_of(outcome.test ? outcome.test->loss : 0, outcome.test.has_value());
  o["test_accuracy"] = json_of(outcome.test ? outcome.test->accuracy : -1, outcome.test && outcome.test->accuracy >= 0);
  o["stopped_by"] = r.stopped_by;
  o["left_over"] = left_over_of(outcome);
  o["lost"] = boost::json::value_from(r.lost);
  o["refused"] = boost::json::value_from(r.refused);
  o["dead_letters"] = dead_letters_json(graph);
  o["training"] = outcome.trained ? boost::json::value(outcome.training) : boost::json::value(nullptr);
  o["learning_rate"] = json_of(r.learning_rate, outcome.trained);
  o["resumed_at"] = r.resumed_at;
  o["checkpoint"] = outcome.checkpoint.empty() ? boost::json::value(nullptr) : boost::json::value(outcome.checkpoint);
  boost::json::array best;
  for (const BestCheckpoint& one : outcome.best)
    best.push_back(boost::json::object{{"file", one.file}, {"step", one.step}, {"loss", json_of(one.loss)}});
  o["best"] = std::move(best);
  o["skipped_batches"] = r.skipped;
  o["kept"] = outcome.kept.empty() ? boost::json::value(nullptr) : boost::json::value(outcome.kept);
  const WeightCounts counts = count_weights(store, outcome.used, outcome.changed);
  o["weights"] = boost::json::object{{"trained", counts.trained}, {"frozen", counts.frozen}, {"unused", counts.unused}};
  o["waited_for_data"] = json_of(r.waited);
  const RunRates& f = outcome.rates;
  o["tokens_per_second"] = json_of(f.tokens_per_second, f.tokens_per_second > 0);
  o["peak_share"] = json_of(f.peak_share, f.peak_share >= 0);
  o["memory"] = boost::json::object{{"resident_bytes", f.resident},
                                    {"most_bytes", std::max(f.resident, most_resident_bytes())}};  // both are estimates
  o["precision"] = boost::json::object{
      {"name", r.precision},
      {"why", r.precision_reason.empty() ? boost::json::value(nullptr) : boost::json::value(r.precision_reason)}};
  o["metrics"] = json_of(r.metrics);
  const Evaluation* validation = validation_of(r);
  o["validation"] = validation ? boost::json::value(json_of(validation->all())) : boost::json::value(nullptr);
  o["validation_step"] = validation ? boost::json::value(validated(r)->step) : boost::json::value(nullptr);
  o["test"] = outcome.test ? boost::json::value(json_of(outcome.test->all())) : boost::json::value(nullptr);
  return o;
}

std::string value_text(const std::string& name, double value) {
  const bool share = name == "accuracy" || name.rfind("top", 0) == 0;
  return !std::isfinite(value) ? "undefined" : share ? percent(value) : fmt::format("{:.4g}", value);
}

// Prints the location of the copy of weights that no flag saved.
void tell_kept(const Options& options, const RunOutcome& outcome) {
  if (!outcome.not_kept.empty()) print_note("no copy of the weights was kept: " + outcome.not_kept);
  if (outcome.kept.empty()) return;
  say("kept weights: " + outcome.kept);
  say(fmt::format("to use them:  harmonics infer {} --weights {} --producer ADDRESS",
                  cli::quoted(options.files.front()), cli::quoted(outcome.kept)));
}

std::string samples_of(uint64_t count, const std::string& name) {
  return fmt::format("{} of '{}'", number_of(count, "sample"), name);
}

// Reports samples that were lost or rejected. Streams of one source have equal counts, which are reported once.
void tell_missing(const CycleReport& r) {
  for (const auto& [name, lost] : r.lost) say("lost: " + samples_of(lost, name));
  std::string before;
  for (const auto& [name, refused] : r.refused) {
    const std::string why = r.last_error.count(name) ? r.last_error.at(name) : "";
    const std::string both = std::to_string(refused) + why;
    if (both != before) say("refused: " + samples_of(refused, name) + (why.empty() ? "" : "; " + why));
    before = both;
  }
}

// Prints the files of samples that were rejected or unpaired.
void tell_dead_letters(BoundGraph& graph) {
  const DeadLetters* const letters = graph.streams().dead_letters();
  if (!letters) return;
  for (const DeadLetters::Kept& kept : letters->kept())
    say(fmt::format("kept: {} of '{}' in {}",
                    number_of(kept.samples, kept.refused ? "refused sample" : "unpaired sample"), kept.stream,
                    fmt::join(kept.files, ", ")));
}

}  // namespace

const Evaluation* validation_of(const CycleReport& report) {
  const EpochReport* epoch = validated(report);
  return epoch ? &*epoch->validation : nullptr;
}

const Evaluation* final_evaluation(const RunOutcome& outcome) {
  return outcome.test ? &*outcome.test : validation_of(outcome.report);
}

// Returns whole numbers as integers. Tables of plugins may have fractions instead of counts.
boost::json::value whole_or_real(double v) {
  constexpr double kMost = 1e15;
  if (std::abs(v) < kMost && std::trunc(v) == v) return static_cast<int64_t>(v);
  return v;
}

boost::json::value confusion_json(const Evaluation& e) {
  boost::json::object layers;
  for (const LayerFigures& layer : e.layers) {
    if (layer.table.side == 0) continue;
    boost::json::array rows;
    for (size_t at = 0; at < layer.table.cells.size(); at += layer.table.side) {
      boost::json::array row;
      for (size_t i = at; i < at + layer.table.side; ++i) row.push_back(whole_or_real(layer.table.cells[i]));
      rows.push_back(std::move(row));
    }
    layers[layer.layer] = std::move(rows);
  }
  return layers;
}

bool asks_for_confusion(const Options& options) {
  return std::find(options.run.metrics.begin(), options.run.metrics.end(), "confusion") != options.run.metrics.end();
}

double speed_of(const EpochReport& e) { return e.seconds > 0 ? static_cast<double>(e.samples) / e.seconds : 0; }

std::string epoch_text(const EpochReport& e, bool constant_rate, int64_t tokens) {
  const std::string speed = tokens > 0 ? rate(speed_of(e) * static_cast<double>(tokens), "tokens") : rate(speed_of(e));
  std::string s =
      fmt::format("epoch {:<3} loss {:<8.4g}{} {}  {}", e.epoch, e.loss,
                  e.accuracy >= 0 ? " accuracy " + percent(e.accuracy) + " " : "", speed, duration(e.seconds));
  for (const auto& [name, value] : e.figures)
    if (name.find('.') == std::string::npos) s += fmt::format("  {} {}", name, value_text(name, value));
  if (!constant_rate) s += fmt::format("  lr {:.3g}", e.learning_rate);
  if (e.waited > kWaitTold && e.waited > kWaitShare * e.seconds)
    s += fmt::format("  waited for data {:.0f} %", 100 * e.waited / e.seconds);
  return s;
}

std::string figures_text(const Evaluation& e) {
  std::string s = fmt::format("loss {:.4g}", e.loss);
  for (const LayerFigures& layer : e.layers)
    for (const Figure& f : layer.figures) {
      if (f.name == "loss" && e.layers.size() == 1) continue;
      s += fmt::format(", {}{} {}", e.layers.size() > 1 ? layer.layer + "." : "", f.name, value_text(f.name, f.value));
    }
  return s;
}

boost::json::object run_object(BoundGraph& graph, const Options& options, const RunOutcome& outcome) {
  boost::json::object o = figures_json(graph, outcome);
  const Evaluation* judged = asks_for_confusion(options) ? final_evaluation(outcome) : nullptr;
  o["confusion"] = judged ? confusion_json(*judged) : boost::json::value(nullptr);
  return o;
}

void summarise(BoundGraph& graph, const Options& options, const RunOutcome& outcome) {
  if (options.quiet) return;
  const CycleReport& r = outcome.report;
  if (!outcome.trained) {
    if (options.weights.empty() && !options.untrained && count_weights(graph.store(), {}, {}).all() > 0)
      print_note("no --weights were given: the results come from untrained weights");
    say(fmt::format("inferred {} in {} ({})", number_of(static_cast<uint64_t>(r.samples), "sample"),
                    duration(r.seconds), rate(r.samples_per_second)));
    tell_missing(r);
    tell_dead_letters(graph);
    return;
  }
  if (r.resumed_at > 0 && r.steps == r.resumed_at && (r.stopped_by == "steps" || r.stopped_by == "epochs"))
    print_note(fmt::format("the checkpoint is the end of the run: it has all {}; to train further, raise {}",
                           number_of(static_cast<uint64_t>(r.steps), "step"),
                           options.generated_flow ? "max_steps or num_epochs" : "--steps or --epochs"));
  say(fmt::format("trained {} on {} in {} ({}; {}): {}",
                  weights_text(count_weights(graph.store(), outcome.used, outcome.changed)),
                  number_of(static_cast<uint64_t>(r.samples), "sample"), duration(r.seconds),
                  rate(r.samples_per_second), end_text(r.stopped_by), loss_text(r)));
  say("by " + outcome.training);
  if (!r.precision_reason.empty()) say(fmt::format("precision auto: {}, as {}", r.precision, r.precision_reason));
  if (r.skipped > 0) say("skipped " + quantity(r.skipped, "batch", "batches"));
  if (!outcome.best.empty())
    say(fmt::format("best validation loss {:.4g}: {}", outcome.best.front().loss, outcome.best.front().file));
  if (r.waited * r.seconds > kWaitTold && r.waited > kWaitShare)
    say(fmt::format("waited for data {:.0f} % of the time", 100 * r.waited));
  if (const EpochReport* e = validated(r))
    say(fmt::format("validation{} on {}: {}", e->step == r.steps ? "" : " after step " + thousands(e->step),
                    number_of(static_cast<uint64_t>(e->validation->samples), "sample"), figures_text(*e->validation)));
  else if (!options.validations.empty())
    print_note("the run ended before its first validation");
  if (!outcome.tested && !options.tests.empty()) print_note("the test was skipped: the run ended early");
  if (outcome.test)
    say(fmt::format("test on {}: {}", number_of(static_cast<uint64_t>(outcome.test->samples), "sample"),
                    figures_text(*outcome.test)));
  if (const Evaluation* e = final_evaluation(outcome); e && asks_for_confusion(options))
    for (const LayerFigures& layer : e->layers)
      if (layer.table.side > 0)
        say(fmt::format("confusion of '{}': {}", layer.layer,
                        confusion_text(layer.table, class_names(graph, layer.layer))));
  tell_missing(r);
  tell_dead_letters(graph);
  tell_kept(options, outcome);
}

std::optional<Error> undefined_figure(const RunOutcome& outcome) {
  const auto wrong = [](const char* what, double loss) {
    return Error(ErrorKind::Diverged,
                 fmt::format("the loss of the {} is {}", what,
                             std::isnan(loss) ? "nan"
                             : loss > 0       ? "inf"
                                              : "-inf"),
                 {}, {"the weights are finite: look at the data it was measured on"});
  };
  const auto undefined = [](const Evaluation& e) { return e.counts && !std::isfinite(e.loss); };
  if (outcome.test && undefined(*outcome.test)) return wrong("test", outcome.test->loss);
  const Evaluation* validation = validation_of(outcome.report);
  if (validation && undefined(*validation)) return wrong("validation", validation->loss);
  return std::nullopt;
}

}  // namespace harmonics::engine::cli
