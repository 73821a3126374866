// Writes a run as a self-contained HTML page: figures, learning curve, confusion matrix, examples, settings, data,
// machine, flow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

struct ReportedData {
  std::string use, address;  // "training", "validation", "test", "input"; [NAME=]ADDRESS, as given
};

struct ReportedRun {
  const CycleReport& cycle;
  const std::optional<Evaluation>& test;
  const RunSettings& settings;
  std::string command;  // as given
  std::vector<ReportedData> data;
};

// Returns why a run ended (CycleReport::stopped_by) as text: "all epochs done".
std::string end_text(const std::string& stopped_by);
// Returns the evaluation to show: the test, else the last validation, else null.
const Evaluation* final_evaluation(const ReportedRun& run);

void write_report(BoundGraph& graph, const ReportedRun& run, const std::string& path);
// Writes the confusion matrix of the first layer that has one. Throws ErrorKind::Usage if no metric computed it.
void write_confusion(BoundGraph& graph, const ReportedRun& run, const std::string& path);

}  // namespace harmonics::engine::cli
