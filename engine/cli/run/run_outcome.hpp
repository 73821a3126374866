// The outcome of a run, as text and as JSON.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "engine/checkpoint/best_checkpoints.hpp"
#include "engine/cli/options/options.hpp"
#include "engine/cli/run/run_rates.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

struct RunOutcome {
  CycleReport report;  // of the last cycle that trained, else of the last cycle
  bool trained = false, interrupted = false, tested = false;
  std::optional<Evaluation> test;
  int cycle = -1;                       // the last cycle that trained
  std::string training;                 // the optimizer and its settings
  std::optional<Error> failure;         // the error that ended the run; earlier steps are kept
  std::string checkpoint;               // path of the newest checkpoint
  std::vector<BestCheckpoint> best;     // with paths, best first
  std::set<std::string> used, changed;  // parameters of all cycles that ran; those that training changed
  std::string kept;                     // path of the copy of otherwise unsaved weights
  std::string not_kept;                 // why there is no copy
  RunRates rates;                       // rates of `report`
};

// Returns the last validated epoch, or null.
const Evaluation* validation_of(const CycleReport& report);
// Returns the test, else the last validation, else null.
const Evaluation* final_evaluation(const RunOutcome& outcome);
bool asks_for_confusion(const Options& options);

double speed_of(const EpochReport& e);  // samples per second
// Formats an epoch. `tokens` is the number of tokens per sample, to show the rate in tokens; 0: in samples.
std::string epoch_text(const EpochReport& e, bool constant_rate, int64_t tokens = 0);
// Returns "loss 0.1, accuracy 98.00 %, f1 0.97".
std::string figures_text(const Evaluation& e);

// Returns the outcome in the schema of docs/schema/run.json.
boost::json::object run_object(BoundGraph& graph, const Options& options, const RunOutcome& outcome);
void summarise(BoundGraph& graph, const Options& options, const RunOutcome& outcome);
// Returns an error if the loss of a test or validation is not finite. The command then fails even if training
// succeeded.
std::optional<Error> undefined_figure(const RunOutcome& outcome);

}  // namespace harmonics::engine::cli
