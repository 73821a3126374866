// Measurements of a run, row by row, for other programs: CSV, JSON lines, TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cli/run/run_rates.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

struct LogRow {
  const char* kind;  // "step", "epoch", "event"
  int64_t epoch = 0, step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  std::map<std::string, double> values;  // "loss", "output.accuracy", "val.loss", ...
  std::string event = {}, text = {};     // of an event
  RunRates rates = {};                   // of steps and epochs
};

class RunLog {
 public:
  explicit RunLog(std::string path) : path_(std::move(path)) {}
  virtual ~RunLog() = default;
  // Called before the first row, with the names that may occur and the step the run resumes from. Removes rows of a
  // former run for later steps and unfinished epochs. Throws ErrorKind::Output on failure.
  virtual void begin(const std::vector<std::string>& names, const Beginning& from) = 0;
  // Writes and flushes a row, so that readers see whole rows. A row that cannot be written is skipped, since no run
  // ends for its log. Returns a message for the first such row.
  std::optional<std::string> write(const LogRow& row);
  // Returns how many rows are missing, and why the last one is.
  std::optional<std::string> gap() const;

 protected:
  const std::string& path() const { return path_; }
  virtual void put(const LogRow& row) = 0;  // throws on failure

 private:
  std::string path_, failure_;
  int64_t lacking_ = 0;
};

// Chooses the format by the ending: .csv, .jsonl. Throws ErrorKind::Usage for other endings, ErrorKind::Output for
// files that cannot be written.
std::unique_ptr<RunLog> make_run_log(const std::string& path);
// Creates the folder and a file of events in it.
std::unique_ptr<RunLog> make_tensorboard_log(const std::string& folder);

}  // namespace harmonics::engine::cli
