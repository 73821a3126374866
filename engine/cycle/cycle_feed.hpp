// CycleFeed: the first stage of a cycle. Reads batches, pass after pass, into the slots that carry them through the
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

// One batch that passes through the stages.
struct Slot {
  std::vector<std::vector<std::byte>> streams;  // empty if a device copies from pinned memory
  std::vector<const void*> pointers;
  std::vector<void*> targets;
  std::vector<std::vector<std::byte>> results;
  std::vector<char> delivers;  // by result: whether this step computed it
  uint64_t count = 0, epoch = 0;
  uint64_t end = 0;             // joint samples of this epoch up to and including this batch
  std::vector<uint64_t> reads;  // by stream: samples that a run resumed after this batch does not need
  size_t sequence = 0;
  double asked = 0, ready = 0;  // when reading began and ended; seconds of feed_clock()
};

// Returns monotonic seconds with the resolution of the system tick, 1 to 10 ms. A single difference has that error;
// the sum of many is unbiased.
double feed_clock();

class CycleFeed {
 public:
  static constexpr size_t kInFlight = 2;  // batches between the stages

  // Starts at joint sample `index` of an epoch.
  CycleFeed(CyclePlan& plan, uint64_t epoch, uint64_t index);
  // `results` is the type of one sample of each wanted value, if it has one. If steps run on a device with its own
  // memory, batches are copied there as soon as they are read, provided the device can copy while it computes.
  void allocate(const std::vector<std::optional<TensorType>>& results);
  // Returns the next batch, or null when the streams or the passes have ended.
  Slot* next();
  // The same in two calls: a slot, then the batch itself, which has no samples at the end. This way nothing is read
  // ahead.
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
  std::vector<uint64_t> prefetch_bytes_;   // bytes, by stream
  std::array<Slot, kInFlight + 2> slots_;  // one more may be read before the limiter blocks; one is refilled
  size_t next_slot_ = 0, read_ = 0;
  uint64_t epoch_ = 0;
  std::atomic<bool> passes_ended_{false}, stream_ended_{false};
};

}  // namespace harmonics::engine
