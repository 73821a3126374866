// Snapshots: the weights of a running cycle for concurrent readers. On request the trainer copies them between two
// steps into one of three buffers that has no reader; the second and third are allocated when the others are in use.
// Tensors that no program changes are shared, and tensors that no program of this cycle changes are copied once to
// each.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/model/parameter_store.hpp"
#include "engine/model/weights_version.hpp"

namespace harmonics::engine {

// Weights and running statistics as they were at the end of a step.
class Snapshot {
 public:
  using Clock = std::chrono::steady_clock;

  const WeightsVersion& version() const { return version_; }
  Clock::time_point taken() const { return taken_; }
  // The index of its buffer. A buffer's addresses never change, so a program bound to it can read every snapshot in it.
  // All buffers have the same layouts.
  size_t place() const { return place_; }
  const ParameterStore& weights() const { return store_; }

 private:
  friend class Snapshots;
  struct Copy {
    const StoredTensor* from;
    StoredTensor* to;
    const std::string* name;
    bool once;  // the tensor never changes
  };
  // Declares the tensors of `like`: of the trainer's store, or of a snapshot in another buffer.
  void lay_out(const ParameterStore& like, const ParameterStore& store, size_t place);
  void fill(const ParameterStore& store, WeightsVersion version,
            const std::function<bool(const std::string& tensor)>& changes);

  ParameterStore store_;
  std::vector<Copy> copies_;
  WeightsVersion version_;
  Clock::time_point taken_;
  size_t place_ = 0;
  bool laid_out_ = false;
  bool filled_ = false;
  int readers_ = 0;  // guarded by Snapshots
};

class Snapshots : public std::enable_shared_from_this<Snapshots> {
 public:
  using Clock = Snapshot::Clock;
  static constexpr size_t kPlaces = 3;
  static constexpr std::chrono::milliseconds kYoung{5};

  // Whether a tensor may have changed since the snapshots began: only such tensors are copied again. Called with the
  // boundary held.
  using Changes = std::function<bool(const std::string& tensor)>;
  // Takes the first snapshot of `store` at once, without moments and accumulators. `store` must keep its tensors, and
  // `changes` what it needs, until detach(). Null `changes`: every tensor that is not fixed.
  Snapshots(const ParameterStore& store, WeightsVersion version, Changes changes = nullptr);

  // ---- the trainer ----
  // `boundary` is held while weights change. While no step runs (a stream waits, a pause), readers lock it and copy
  // themselves.
  void attach(std::mutex& boundary);
  // Copies the last weights; `store` is not accessed after that. `held`: the calling thread holds the boundary.
  void detach(bool held = false);
  // Called at the start of a step, with `boundary` held.
  void begin() { whole_ = false; }
  // Called at the end of a step, with `boundary` held. Costs one load if there is no request; allocates only the second
  // and third buffer.
  void end(int64_t step) {
    whole_ = true;
    ended_.store(step, std::memory_order_relaxed);
    if (wanted_.load(std::memory_order_relaxed)) take(false);
  }

  // Takes the last step's weights while no step runs: a pause, or a stream without samples. Requires `boundary`.
  void settle();

  // ---- readers, from any thread ----
  // Returns the newest snapshot.
  std::shared_ptr<const Snapshot> newest();
  // Returns a snapshot of the last step, or a recent one. Waits for the current step until `deadline`, then returns
  // the newest there is. Requests another snapshot for the next call.
  std::shared_ptr<const Snapshot> fresh(Clock::time_point deadline);
  // The weights that programs compiled for this buffer read; a snapshot must have been in it.
  ParameterStore& place(size_t i) { return places_[i].store_; }
  // All buffers get one queue of this device, so that one plan can be bound to each. The first device's stays.
  void share_queue(const ItemPtr& device);
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  bool is_fresh(const Snapshot& s) const;
  bool due() const;
  void take(bool whatever_the_age);
  void take_idle();
  std::shared_ptr<const Snapshot> hold(Snapshot& s);
  void release(const Snapshot& s);

  const ParameterStore& store_;
  const Changes changes_;
  int cycle_;
  std::array<Snapshot, kPlaces> places_;
  std::atomic<bool> wanted_{false};
  std::atomic<int64_t> ended_;
  std::atomic<Clock::rep> youth_;  // minimum age before the next copy
  std::atomic<uint64_t> taken_{0};
  std::chrono::nanoseconds cost_ = std::chrono::hours(1);  // of the cheapest copy so far
  bool whole_ = true;                                      // no step is in progress; guarded by the boundary

  std::mutex attached_;
  std::mutex* boundary_ = nullptr;  // guarded by attached_

  std::mutex mutex_;  // guards newest_, the reader counts and queue_
  std::condition_variable published_;
  Snapshot* newest_ = nullptr;
  std::shared_ptr<DeviceQueue> queue_;
};

}  // namespace harmonics::engine
