// What a run measured, row by row, for other programs: CSV, JSON lines, TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/cycle_runtime.hpp"

namespace harmonics::cli {

struct LogRow {
  const char* kind;  // "step", "epoch"
  int64_t epoch = 0, step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  std::map<std::string, double> values;  // "loss", "output.accuracy", "val.loss", ...
};

class RunLog {
 public:
  virtual ~RunLog() = default;
  // Before the first row: the names that may come, and where the run goes on. What a former run wrote of later steps, and of
  // epochs that were not over, is taken away.
  virtual void begin(const std::vector<std::string>& names, const Beginning& from) = 0;
  virtual void write(const LogRow& row) = 0;  // at once: whoever reads along sees whole rows
};

// By the ending: .csv, .jsonl. Other endings are ErrorKind::Usage, files that cannot be written ErrorKind::Output.
std::unique_ptr<RunLog> make_run_log(const std::string& path);
// A file of events in the folder, which is made.
std::unique_ptr<RunLog> make_tensorboard_log(const std::string& folder);

}  // namespace harmonics::cli
