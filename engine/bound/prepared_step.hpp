// One step of a cycle with its data in memory, so that timings exclude reading.
#pragma once

#include <memory>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/execution/input_prefetch.hpp"

namespace harmonics::engine {

// Joint samples of a cycle, read once. Producers without a stream get random numbers of their declared type.
class Rows {
 public:
  // Reads 2048 samples or eight batches, whichever is more, limited to 128 MiB but at least one batch. A finite
  // stream restarts at its end. Throws ErrorKind::Usage if the type of a producer is unknown or has no random numbers.
  Rows(BoundGraph& graph, int cycle, bool trains, uint64_t batch, uint64_t seed);

  uint64_t count() const { return count_; }
  const std::vector<int>& producers() const { return producers_; }
  uint64_t bytes(size_t producer) const { return bytes_[producer]; }
  const std::byte* row(size_t producer, uint64_t i) const { return rows_[producer].data() + i * bytes_[producer]; }
  bool streamed() const { return streamed_; }  // every producer has a stream

 private:
  void read(BoundGraph& graph, const std::vector<size_t>& bound, uint64_t seed);

  std::vector<int> producers_;
  std::vector<uint64_t> bytes_;
  std::vector<std::vector<std::byte>> rows_;
  uint64_t count_ = 0;
  bool streamed_ = true;
};

struct PreparedSettings : DeviceSettings {
  int cycle = 0;
  bool trains = false;
  int64_t batch = 1;
  int threads = 0;
  uint64_t seed = 0;
  UpdateSettings update;  // used only if `trains`
};

// A compiled step that takes the first branch of every condition. Each run takes the next batch of the rows, and the
// first one after the last.
class PreparedStep {
 public:
  PreparedStep(BoundGraph& graph, const Rows& rows, const PreparedSettings& settings);

  size_t next();  // sets the inputs of the next run and returns the batch's number; run() calls it
  size_t run() {
    const size_t batch = next();
    if (step_->loss())
      step_->run_if_finite();  // as in a running cycle
    else
      step_->run();
    return batch;
  }
  CompiledStep& step() { return *step_; }
  const Executable& executable() const { return step_->executable(); }
  uint64_t prepared_bytes() const { return prepared_bytes_; }  // of all batches

 private:
  void lay_out(BoundGraph& graph, const Rows& rows, const PreparedSettings& settings);

  std::unique_ptr<CompiledStep> step_;
  std::vector<std::shared_ptr<Storage>> streams_;  // one for all batches; none if they are on a device
  std::unique_ptr<InputPrefetch> on_device_;       // all batches, for devices with their own memory
  uint64_t prepared_bytes_ = 0;
  std::vector<std::vector<const void*>> pointers_;  // [batch][stream]
  float lr_ = 0;
  uint64_t seed_ = 0;
  int64_t count_ = 0;
};

}  // namespace harmonics::engine
