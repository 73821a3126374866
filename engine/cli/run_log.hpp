// What a run measured, row by row, for other programs: CSV, JSON lines, TensorBoard.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::cli {

struct LogRow {
  const char* kind;  // "step", "epoch", "event"
  int64_t epoch = 0, step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  std::map<std::string, double> values;  // "loss", "output.accuracy", "val.loss", ...
  std::string event = {}, text = {};     // of an event
};

class RunLog {
 public:
  explicit RunLog(std::string path) : path_(std::move(path)) {}
  virtual ~RunLog() = default;
  // Before the first row: the names that may come, and where the run goes on. What a former run wrote of later steps,
  // and of epochs that were not over, is taken away. Throws ErrorKind::Output when it cannot be begun.
  virtual void begin(const std::vector<std::string>& names, const Beginning& from) = 0;
  // Flushed at once, so that readers see whole rows. One that cannot be written is left out, since no run ends for its
  // log; what to tell people then, the first time.
  std::optional<std::string> write(const LogRow& row);
  // How many rows are missing, and why the last one is.
  std::optional<std::string> gap() const;

 protected:
  const std::string& path() const { return path_; }
  virtual void put(const LogRow& row) = 0;  // throws when it cannot be written

 private:
  std::string path_, failure_;
  int64_t lacking_ = 0;
};

// By the ending: .csv, .jsonl. Other endings are ErrorKind::Usage, files that cannot be written ErrorKind::Output.
std::unique_ptr<RunLog> make_run_log(const std::string& path);
// A file of events in the folder, which is made.
std::unique_ptr<RunLog> make_tensorboard_log(const std::string& folder);

}  // namespace harmonics::cli
