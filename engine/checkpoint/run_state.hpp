// RunState: the state of a run at the end of a step, besides its tensors: everything needed to resume it exactly.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/checkpoint/record_state.hpp"
#include "engine/model/sealed_file.hpp"

namespace harmonics::engine {

struct RunState {
  int64_t cycle = 0;  // from 0
  int64_t step = 0, batches = 0, samples = 0;
  uint64_t epoch = 0, index = 0;  // the position: joint samples of this epoch used by steps
  double seconds = 0;
  double learning_rate = 0;
  std::optional<double> learning_rate_set;  // set from outside, in place of the schedule
  RecordState record;

  std::string not_resumable;                // why the streams cannot return to the position; empty: they can
  std::map<std::string, uint64_t> streams;  // samples in a pass, by producer; 0: unbounded or unknown
  struct Live {
    uint64_t index = 0;     // the next sample to read, counted from the beginning of this stream
    std::string position;   // as given by its producer
    std::string type = {};  // as announced by its source (<harmonics/announced.hpp>)
  };
  std::map<std::string, Live> live;  // by producer, for live streams with positions
  std::string reading;               // shuffle, skip, take, ...: the options that give the position its meaning
  std::string graph;                 // name of the graph
  std::string identity;              // hash of its text
  uint64_t seed = 0;
  std::string training, device;  // training settings and device
  int64_t batch = 0, accumulate = 1;
  std::map<std::string, std::string> implementations;  // of each functional; empty: written by an earlier version
  // What decides the last bits beside the settings: "precision" ("precision chosen": by auto), "device" (its own line,
  // with the instruction set), "kernels of OPERATION"; empty: written by an earlier version
  std::map<std::string, std::string> routes;
  std::map<std::string, double> metrics;  // for display

  // Returns "epoch 3, sample 1,200"; epochs count from 1 here.
  std::string position() const;
};

// Returns a hash of the text as sixteen hexadecimal digits.
std::string identity_of(const std::string& text);

// Stores the state in a file's metadata ("harmonics.run", JSON with a version) and in tensors named "run/...".
void write_state(const RunState& state, TensorFile& file);
// Takes the "run/..." tensors out of the file. Throws ErrorKind::Weights with `name` if there is no state, or it is
// of a later version or malformed.
RunState take_state(TensorFile& file, const std::string& name);

}  // namespace harmonics::engine
