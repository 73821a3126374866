// CycleFeed: the input stage of a cycle. Reads batches, pass after pass, into slots, which carry them through the
// stages.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "engine/cycle/cycle_plan.hpp"
#include "engine/execution/input_prefetch.hpp"

namespace harmonics::engine {

// One batch on its way through the stages.
struct Slot {
  std::vector<std::vector<std::byte>> streams;  // empty if the device copies from pinned memory
  std::vector<const void*> pointers;
  std::vector<void*> targets;
  std::vector<std::vector<std::byte>> results;
  std::vector<char> delivers;  // by result: true if this step computed it
  uint64_t count = 0, epoch = 0;
  uint64_t end = 0;             // joint samples of this epoch up to the end of this batch
  std::vector<uint64_t> reads;  // by producer: samples that a run resumed after this batch does not need
  size_t sequence = 0;
  double asked = 0, ready = 0;  // start and end of the read, in seconds of feed_clock()
};

// Returns monotonic seconds with the resolution of the system tick, 1 to 10 ms. A single difference has that error;
// sums of many differences are unbiased.
double feed_clock();

class CycleFeed {
 public:
  static constexpr size_t kInFlight = 2;  // batches between the stages

  // Starts at joint sample `index` of epoch `epoch`.
  CycleFeed(CyclePlan& plan, uint64_t epoch, uint64_t index);
  // Allocates the slots. `results`: the type of one sample of each wanted value, if it has one. If steps run on a
  // device with its own memory that can copy while it computes, batches are copied there as soon as they are read.
  void allocate(const std::vector<std::optional<TensorType>>& results);
  // Reads and returns the next batch. Returns null when the streams or the passes have ended.
  Slot* next();
  // next() split in two, so that nothing is read ahead: next_slot() returns a slot, fill() reads the batch into it. At
  // the end the batch has no samples.
  Slot* next_slot() { return stream_ended() || passes_ended() ? nullptr : &take(); }
  void fill(Slot& slot);
  bool stream_ended() const { return stream_ended_.load(std::memory_order_relaxed); }
  bool passes_ended() const { return passes_ended_.load(std::memory_order_relaxed); }

 private:
  Slot& take();
  void read(Slot& slot);
  bool next_pass();

  CyclePlan& plan_;
  std::unique_ptr<InputPrefetch> prefetch_;
  std::vector<uint64_t> prefetch_bytes_;   // by stream
  std::array<Slot, kInFlight + 2> slots_;  // one may be read before the limiter blocks, one is refilled
  size_t next_slot_ = 0, read_ = 0;
  uint64_t epoch_ = 0;
  std::atomic<bool> passes_ended_{false}, stream_ended_{false};
};

}  // namespace harmonics::engine
