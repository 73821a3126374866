// What became of a run, for people and as an object.
#pragma once

#include <optional>
#include <set>
#include <string>

#include <boost/json/fwd.hpp>

#include "engine/cli/options.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::cli {

struct RunOutcome {
  CycleReport report;  // of the last cycle that trained, else of the last
  bool trained = false, interrupted = false, tested = false;
  std::optional<Evaluation> test;
  int cycle = -1;                       // that trained last
  std::string training;                 // by what it was trained
  std::optional<Error> failure;         // what ended it: the steps before it are kept
  std::string checkpoint;               // the newest
  std::set<std::string> used, changed;  // parameters of all cycles that ran; those that training changed
  std::string kept;                     // the copy of weights that nothing else saves
  std::string not_kept;                 // why there is none
};

// The last epoch that was validated; null: none was.
const Evaluation* validation_of(const CycleReport& report);
// The test, else the last validation; null: neither.
const Evaluation* judged_last(const RunOutcome& outcome);
bool asks_for_confusion(const Options& options);

double speed_of(const EpochReport& e);  // samples a second
std::string epoch_text(const EpochReport& e, bool constant_rate);
// "loss 0.1, accuracy 98.00 %, f1 0.97"
std::string figures_text(const Evaluation& e);

// docs/schema/run.json
boost::json::object run_object(HarmonicGraph& graph, const Options& options, const RunOutcome& outcome);
void summarise(HarmonicGraph& graph, const Options& options, const RunOutcome& outcome);
// A figure that says nothing is a failure, whatever the training was like.
std::optional<Error> undefined_figure(const RunOutcome& outcome);

}  // namespace harmonics::cli
