// RunState: what a run is at the end of a step, besides its tensors. Everything a run needs to go on as if nothing had
// been.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/checkpoint/record_state.hpp"
#include "engine/model/sealed_file.hpp"

namespace harmonics {

struct RunState {
  int64_t cycle = 0;  // from 0
  int64_t step = 0, batches = 0, samples = 0;
  uint64_t epoch = 0, index = 0;  // the position: joint samples of this epoch that steps have used
  double seconds = 0;
  double learning_rate = 0;
  std::optional<double> learning_rate_set;  // from outside, in place of the schedule
  RecordState record;

  std::string not_resumable;                // why the streams cannot go back to the position; empty: they can
  std::map<std::string, uint64_t> streams;  // samples in a pass, by producer; 0: unbounded or unknown
  struct Live {
    uint64_t index = 0;     // the sample of this stream, counted from its beginning, that is read next
    std::string position;   // what its producer said of it
    std::string type = {};  // what its source announced (<harmonics/announced.hpp>)
  };
  std::map<std::string, Live> live;  // by producer, for those that are live and have positions
  std::string reading;               // shuffle, skip, take, ...: what the position counts in
  std::string graph;                 // its name
  std::string identity;              // of its text
  uint64_t seed = 0;
  std::string training, device;  // by what it learns, and where
  int64_t batch = 0, accumulate = 1;
  std::map<std::string, std::string>
      implementations;                    // who computed each functional; empty: written by an earlier version
  std::map<std::string, double> metrics;  // for people

  // "epoch 3, sample 1,200"; epochs count from 1 here.
  std::string position() const;
};

// Sixteen hexadecimal digits of a text.
std::string identity_of(const std::string& text);

// In a file's metadata ("harmonics.run", JSON with a version) and in tensors called "run/...".
void write_state(const RunState& state, TensorFile& file);
// Takes the "run/..." tensors out of the file. Throws ErrorKind::Weights with `name` when there is no state, it is of a
// later version, or cannot be understood.
RunState take_state(TensorFile& file, const std::string& name);

}  // namespace harmonics
