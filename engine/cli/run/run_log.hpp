// Logs of a run's measurements for other programs: CSV, JSON lines, TensorBoard.
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
  std::string event = {}, text = {};     // kind and message of an event
  RunRates rates = {};                   // of steps and epochs
};

class RunLog {
 public:
  explicit RunLog(std::string path) : path_(std::move(path)) {}
  virtual ~RunLog() = default;
  // Must be called before the first row, with the names that may occur and the step from which the run resumes. Removes
  // earlier rows of later steps and unfinished epochs. Throws ErrorKind::Output on failure.
  virtual void begin(const std::vector<std::string>& names, const Beginning& from) = 0;
  // Writes and flushes a row, so that readers see whole rows. Skips a row that cannot be written, because a log must
  // not end the run. Returns a message for the first such row.
  std::optional<std::string> write(const LogRow& row);
  // Returns a message with the number of missing rows and the last reason; none if no row is missing.
  std::optional<std::string> gap() const;

 protected:
  const std::string& path() const { return path_; }
  virtual void put(const LogRow& row) = 0;  // throws on failure

 private:
  std::string path_, failure_;
  int64_t lacking_ = 0;
};

// Opens a log. The file extension selects the format: .csv, .jsonl. Throws ErrorKind::Usage for other extensions,
// ErrorKind::Output for files that cannot be written.
std::unique_ptr<RunLog> make_run_log(const std::string& path);
// Opens a TensorBoard log: creates the folder and a file of events in it.
std::unique_ptr<RunLog> make_tensorboard_log(const std::string& folder);

}  // namespace harmonics::engine::cli
