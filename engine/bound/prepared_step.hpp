// One step of a cycle with its data in memory: what is timed when reading is not to count.
#pragma once

#include <memory>
#include <vector>

#include "engine/bound/harmonic_graph.hpp"

namespace harmonics {

// Joint samples of a cycle, read once. A producer without a stream gives random numbers of its declared type.
class Rows {
 public:
  // 2048 samples or eight batches, whichever is more, but no more than a batch beyond 128 MiB; a finite stream begins
  // anew where it ends. Types a graph cannot know are ErrorKind::Usage.
  Rows(HarmonicGraph& graph, int cycle, bool trains, uint64_t batch, uint64_t seed);

  uint64_t count() const { return count_; }
  const std::vector<int>& producers() const { return producers_; }
  uint64_t bytes(size_t producer) const { return bytes_[producer]; }
  const std::byte* row(size_t producer, uint64_t i) const { return rows_[producer].data() + i * bytes_[producer]; }
  bool streamed() const { return streamed_; }  // does every producer have a stream

 private:
  void read(HarmonicGraph& graph, const std::vector<size_t>& bound, uint64_t seed);

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
  UpdateSettings update;  // training
};

// The first branch of every condition, compiled; each run takes the next batch of the rows, from the front again after
// the last.
class PreparedStep {
 public:
  PreparedStep(HarmonicGraph& graph, const Rows& rows, const PreparedSettings& settings);

  size_t next();  // points the next run at its batch, whose number it gives; run() does it by itself
  size_t run() {
    const size_t batch = next();
    if (step_->loss())
      step_->run_if_finite();  // as a cycle runs it
    else
      step_->run();
    return batch;
  }
  CompiledStep& step() { return *step_; }
  const Executable& executable() const { return step_->executable(); }
  uint64_t prepared_bytes() const;  // of all batches

 private:
  void lay_out(const Rows& rows, uint64_t batch);

  std::unique_ptr<CompiledStep> step_;
  std::vector<std::shared_ptr<Storage>> streams_;   // one for all batches
  std::vector<std::vector<const void*>> pointers_;  // [batch][stream]
  float lr_ = 0;
  uint64_t seed_ = 0;
  int64_t count_ = 0;
};

}  // namespace harmonics
