// RunState: the state of a run at the end of a step. With the run's tensors it suffices to resume exactly.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/checkpoint/record_state.hpp"
#include "engine/flow/layer_change.hpp"
#include "engine/model/sealed_file.hpp"

namespace harmonics::engine {

struct RunState {
  int64_t cycle = 0;  // index of the cycle
  int64_t step = 0, batches = 0, samples = 0;
  uint64_t epoch = 0, index = 0;  // the position: joint samples of this epoch used by steps
  double seconds = 0;
  double learning_rate = 0;
  std::optional<double> learning_rate_set;  // replaces that of the schedule, set while the run was running
  RecordState record;

  std::string not_resumable;                // why the streams cannot seek to the position; empty: they can
  std::map<std::string, uint64_t> streams;  // samples in a pass, by producer; 0: unbounded or unknown
  struct Live {
    uint64_t index = 0;     // index of the next sample in this stream
    std::string position;   // the producer's position
    std::string type = {};  // as announced by the sender (<harmonics/announced.hpp>)
  };
  std::map<std::string, Live> live;  // by producer, for live streams with positions
  std::string reading;               // options of the streams that the position depends on: shuffle, skip, take, ...
  std::string graph;                 // name of the graph
  std::string identity;              // hash of the graph's text
  LayerChanges changes;              // of layers, by request while the run was running; contained in that text
  uint64_t seed = 0;
  std::string training, device;  // training settings and device
  int64_t batch = 0, accumulate = 1;
  std::map<std::string, std::string> implementations;  // by functional; empty: from an earlier version
  // Further conditions of bit-identical results: "precision" (if by auto "precision chosen", and
  // "precision from side", its least side), "device" (its
  // description, with the instruction set), "kernels of OPERATION"; empty: from an earlier version.
  std::map<std::string, std::string> routes;
  std::map<std::string, double> metrics;  // for display

  // Returns "epoch 3, sample 1200", with epochs counted from 1.
  std::string position() const;
};

// Returns a hash of the text as sixteen hexadecimal digits.
std::string identity_of(const std::string& text);

// Stores the state in a file's metadata ("harmonics.run", JSON with a version) and in tensors named "run/...".
void write_state(const RunState& state, TensorFile& file);
// Restores the state and removes the "run/..." tensors from the file. Throws ErrorKind::Weights with `name` if there is
// no state, or if it is malformed or of a later version.
RunState take_state(TensorFile& file, const std::string& name);
// Returns RunState::changes of a checkpoint's metadata, without earlier values; none if it has no valid state.
LayerChanges changes_in(const std::map<std::string, std::string>& metadata);

}  // namespace harmonics::engine
