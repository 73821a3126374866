// Snapshots: the weights of a running cycle for concurrent readers. On request the trainer copies the weights, between
// two steps, into one of three buffers that has no reader. The second and third buffer are allocated when the others
// are in use. Tensors that never change are shared; tensors that no program of this cycle changes are copied once per
// buffer.
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

// Weights and running statistics at the end of a step.
class Snapshot {
 public:
  using Clock = std::chrono::steady_clock;

  const WeightsVersion& version() const { return version_; }
  Clock::time_point taken() const { return taken_; }
  // Returns the index of the buffer. The addresses of a buffer never change, so a program bound to it can read every
  // snapshot in it. All buffers have the same layouts.
  size_t place() const { return place_; }
  const ParameterStore& weights() const { return store_; }

 private:
  friend class Snapshots;
  struct Copy {
    const StoredTensor* from;
    StoredTensor* to;
    const std::string* name;
    bool once;  // copied once per buffer: a frozen tensor
  };
  // Declares the tensors of `like`, which is the store of the trainer or a snapshot in another buffer.
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

  // Returns whether a tensor may have changed since the first snapshot. Only such tensors are copied again. Called with
  // the boundary held.
  using Changes = std::function<bool(const std::string& tensor)>;
  // Takes the first snapshot of `store`, without moments and accumulators. Until detach(), `store` must keep its
  // tensors and `changes` must be callable. If `changes` is null, every tensor that is not fixed may change.
  Snapshots(const ParameterStore& store, WeightsVersion version, Changes changes = nullptr);

  // ---- called by the trainer ----
  // Sets the mutex that is held while weights change. While no step runs (a pause, or a stream without samples),
  // readers lock it and copy the weights themselves.
  void attach(std::mutex& boundary);
  // Copies the weights of the last step; `store` is not accessed afterwards. `held`: this thread holds the boundary.
  void detach(bool held = false);
  // Called at the start of a step, with `boundary` held.
  void begin() { whole_ = false; }
  // Called at the end of a step, with `boundary` held. Costs one load if there is no request. Allocates only for the
  // second and third buffer.
  void end(int64_t step) {
    whole_ = true;
    ended_.store(step, std::memory_order_relaxed);
    if (wanted_.load(std::memory_order_relaxed)) take(false);
  }

  // Copies the weights of the last step while no step runs. Requires the boundary.
  void settle();

  // ---- called by readers, from any thread ----
  // Returns the newest snapshot.
  std::shared_ptr<const Snapshot> newest();
  // Returns a snapshot that is recent or of the last step. Waits for the current step until `deadline`, then returns
  // the newest snapshot. Requests another snapshot for the next call.
  std::shared_ptr<const Snapshot> fresh(Clock::time_point deadline);
  // Returns the weights of buffer `i`, which must have contained a snapshot. Programs compiled for the buffer read
  // them.
  ParameterStore& place(size_t i) { return places_[i].store_; }
  // Gives all buffers one queue of the device, so that one plan can be bound to each. Has no effect after the first
  // call.
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
  std::chrono::nanoseconds cost_ = std::chrono::hours(1);  // of the cheapest copy
  bool whole_ = true;                                      // no step is in progress; guarded by the boundary

  std::mutex attached_;
  std::mutex* boundary_ = nullptr;  // guarded by attached_

  std::mutex mutex_;  // guards newest_, the reader counts and queue_
  std::condition_variable published_;
  Snapshot* newest_ = nullptr;
  std::shared_ptr<DeviceQueue> queue_;
};

}  // namespace harmonics::engine
