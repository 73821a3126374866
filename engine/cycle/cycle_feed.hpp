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

namespace harmonics {

// One batch on its way through the stages.
struct Slot {
  std::vector<std::vector<std::byte>> streams;  // where the batch does not lie in memory that a device copies from
  std::vector<const void*> pointers;
  std::vector<void*> targets;
  std::vector<std::vector<std::byte>> results;
  std::vector<char> delivers;  // by result: did this step make it
  uint64_t count = 0, epoch = 0;
  uint64_t end = 0;             // joint samples of this epoch up to and with this batch
  std::vector<uint64_t> reads;  // by stream: how many of its samples a run that goes on behind this batch does not need
  size_t sequence = 0;
  double asked = 0, ready = 0;  // when it began to be read, and was; seconds of feed_clock()
};

// Monotonic seconds with the resolution of the system tick, 1 to 10 ms. A single difference is that coarse; the sum of
// many has no bias.
double feed_clock();

class CycleFeed {
 public:
  static constexpr size_t kInFlight = 2;  // batches between the stages

  // From joint sample `index` of an epoch on.
  CycleFeed(CyclePlan& plan, uint64_t epoch, uint64_t index);
  // `results`: the type of one sample of each wanted value, where it has one. Where steps run on a device with memory
  // of its own, batches go there as soon as they are read, if it can take them beside its steps.
  void allocate(const std::vector<std::optional<TensorType>>& results);
  // The next batch; null when the streams, or the passes, have ended.
  Slot* next();
  // The same in two: a slot for it, and the batch itself, of no samples at the end. Nothing is read ahead so.
  Slot* next_slot() { return stream_ended() || passes_ended() ? nullptr : &take(); }
  void fill(Slot& slot);
  bool stream_ended() const { return stream_ended_.load(std::memory_order_relaxed); }
  bool passes_ended() const { return passes_ended_.load(std::memory_order_relaxed); }

 private:
  Slot& take();
  void read(Slot& slot);
  bool next_pass();

  CyclePlan& plan_;
  std::unique_ptr<InputPrefetch> arrivals_;
  std::vector<uint64_t> arriving_;         // bytes, by stream
  std::array<Slot, kInFlight + 2> slots_;  // one more may be read before the limiter holds, one is being refilled
  size_t next_slot_ = 0, read_ = 0;
  uint64_t epoch_ = 0;
  std::atomic<bool> passes_ended_{false}, stream_ended_{false};
};

}  // namespace harmonics
