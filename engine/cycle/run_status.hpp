// The status that a run reports to other threads: plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace harmonics::engine {

enum class RunPhase { starting, running, pausing, paused, stopping, over, serving };
enum class Health { ok, degraded, failed };

const char* word(RunPhase phase);
const char* word(Health health);

// Figures of live sources only.
struct LiveStreamStatus {
  uint64_t queued_samples = 0, queued_bytes = 0, window_bytes = 0, senders = 0, connected = 0;  // as in StreamHealth
  uint64_t lost = 0, duplicates = 0, refused = 0, resent = 0;
  uint64_t dropped = 0, unpaired = 0, late = 0, filled = 0;  // as in JoinCounts
  double idle_seconds = 0;
  std::string last_error;
};

// The flow of samples from a producer into the steps.
struct StreamStatus {
  std::string name;
  bool live = false;
  std::string state = "reading";  // "waiting", "receiving", "ended", "failed"
  Health health = Health::ok;
  uint64_t samples = 0, bytes = 0;  // used by steps
  double rate = 0, bytes_per_second = 0;
  using Live = LiveStreamStatus;
  std::optional<Live> of_live;

  std::optional<double> back_pressure() const;  // 0 to 1: fill level of the window
  std::optional<double> lag_seconds() const;    // seconds of queued samples at the current rate
};

struct LogLine {
  uint64_t number = 0;
  double seconds = 0;
  const char* level = "note";  // "warning", "error"
  std::string text;
};

// A row of the log file written by --log.
struct RunRow {
  uint64_t number = 0;
  int64_t epoch = 0, step = 0, samples = 0;
  double seconds = 0, samples_per_second = 0, learning_rate = 0;
  std::map<std::string, double> metrics;
};

// Test-then-train: metrics over the samples evaluated last.
struct RunWindow {
  int64_t samples = 0, of = 0;
  std::map<std::string, double> metrics;
};

struct RunStatus {
  std::string graph;
  RunPhase phase = RunPhase::starting;
  int cycle = 0, cycles = 1;  // from 0
  bool trains = false;
  int64_t epoch = 0, epochs = 0, step = 0, samples = 0;  // epoch from 1; epochs 0: unlimited
  double seconds = 0, samples_per_second = 0, steps_per_second = 0;
  double fraction = -1;                   // negative: unknown
  std::map<std::string, double> metrics;  // includes "loss"
  std::optional<double> learning_rate;
  bool learning_rate_set = false;
  using Window = RunWindow;
  std::optional<Window> window;
  struct LastCheckpoint {
    std::string path;
    int64_t step = 0;
    double seconds_ago = 0;
  };
  std::optional<LastCheckpoint> checkpoint;
  bool checkpointing = false;
  Health health = Health::ok;
  std::vector<StreamStatus> streams;
  uint64_t notes = 0;  // lines logged so far
};

}  // namespace harmonics::engine
