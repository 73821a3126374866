// A run as one self-contained HTML page: figures, curve, confusion, examples, settings, data, machine,
// flow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

struct ReportedData {
  std::string use, address;  // "training", "validation", "test", "input"; [NAME=]ADDRESS, as typed
};

struct ReportedRun {
  const CycleReport& cycle;
  const std::optional<Evaluation>& test;
  const RunSettings& settings;
  std::string command;  // as typed
  std::vector<ReportedData> data;
};

// Says why a run ended (CycleReport::stopped_by): "all epochs done".
std::string end_text(const std::string& stopped_by);
// Returns the evaluation for pictures and tables: the test, else the last validation, else null.
const Evaluation* final_evaluation(const ReportedRun& run);

void write_report(BoundGraph& graph, const ReportedRun& run, const std::string& path);
// Writes the layer's counts of truth by prediction. Throws ErrorKind::Usage if no metric counted them.
void write_confusion(BoundGraph& graph, const ReportedRun& run, const std::string& path);

}  // namespace harmonics::engine::cli
