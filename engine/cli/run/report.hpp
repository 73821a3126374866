// A run as one self-contained HTML page: figures, curve, confusion, examples, settings, machine, flow.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

struct ReportedRun {
  const CycleReport& cycle;
  const std::optional<Evaluation>& test;
  const RunSettings& settings;
  std::string command;  // as typed
};

// Returns the evaluation for pictures and tables: the test, else the last validation, else null.
const Evaluation* final_evaluation(const ReportedRun& run);

void write_report(BoundGraph& graph, const ReportedRun& run, const std::string& path);
// Writes the layer's counts of truth by prediction. Throws ErrorKind::Usage if no metric counted them.
void write_confusion(BoundGraph& graph, const ReportedRun& run, const std::string& path);

}  // namespace harmonics::engine::cli
