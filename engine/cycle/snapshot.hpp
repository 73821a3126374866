// Snapshots: the weights of a running cycle for whoever reads them while it goes on. The trainer copies them between
// two steps, when somebody asked, into one of three places that nobody reads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/model/parameter_store.hpp"

namespace harmonics {

// What weights are of: a step of a cycle.
struct WeightsVersion {
  int cycle = 0;  // from 0
  int64_t step = 0;
  bool operator==(const WeightsVersion&) const = default;
};

// Weights and running statistics as they were at the end of a step.
class Snapshot {
 public:
  using Clock = std::chrono::steady_clock;

  const WeightsVersion& version() const { return version_; }
  Clock::time_point taken() const { return taken_; }
  // Which of the places it lies in. A place's addresses never change, so a program compiled for one reads every
  // snapshot there.
  size_t place() const { return place_; }
  const ParameterStore& weights() const { return store_; }

 private:
  friend class Snapshots;
  struct Copy {
    const StoredTensor* from;
    StoredTensor* to;
    const std::string* name;
    bool once;  // it never changes
  };
  void lay_out(const ParameterStore& store, size_t place);
  void fill(const ParameterStore& store, WeightsVersion version);

  ParameterStore store_;
  std::vector<Copy> copies_;
  WeightsVersion version_;
  Clock::time_point taken_;
  size_t place_ = 0;
  bool filled_ = false;
  int readers_ = 0;  // guarded by Snapshots
};

class Snapshots : public std::enable_shared_from_this<Snapshots> {
 public:
  using Clock = Snapshot::Clock;
  static constexpr size_t kPlaces = 3;
  static constexpr std::chrono::milliseconds kYoung{5};

  // Of what `store` holds now, moments and sums aside; `store` must keep its tensors until detach(). Has its first
  // snapshot at once.
  Snapshots(const ParameterStore& store, WeightsVersion version);

  // ---- the trainer ----
  // `boundary`: held while weights change. While nothing trains (a stream that waits, a pause), readers copy for
  // themselves under it.
  void attach(std::mutex& boundary);
  // The last weights, whoever wants them; after that `store` is not looked at any more. `held`: by a thread that holds
  // the boundary.
  void detach(bool held = false);
  // A step has begun; with `boundary` held.
  void begin() { whole_ = false; }
  // A step has ended; with `boundary` held. One load when nobody asks; nothing is allocated.
  void end(int64_t step) {
    whole_ = true;
    ended_.store(step, std::memory_order_relaxed);
    if (wanted_.load(std::memory_order_relaxed)) take(false);
  }

  // Nothing trains: a pause, or a stream without samples; with `boundary` held.
  void settle();

  // ---- readers, from any thread ----
  // The newest there is.
  std::shared_ptr<const Snapshot> newest();
  // One of the last step that ended, or young; waits for the step that runs, at most until `deadline`, then the newest
  // there is. Asks for another one to be there next time.
  std::shared_ptr<const Snapshot> fresh(Clock::time_point deadline);
  // Where programs that read snapshots of this place find the weights.
  ParameterStore& place(size_t i) { return places_[i].store_; }
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  bool is_fresh(const Snapshot& s) const;
  bool due() const;
  void take(bool whatever_the_age);
  void take_idle();
  std::shared_ptr<const Snapshot> hold(Snapshot& s);
  void release(const Snapshot& s);

  const ParameterStore& store_;
  int cycle_;
  std::array<Snapshot, kPlaces> places_;
  std::atomic<bool> wanted_{false};
  std::atomic<int64_t> ended_;
  std::atomic<Clock::rep> youth_;  // below this age nothing is copied
  std::atomic<uint64_t> taken_{0};
  std::chrono::nanoseconds cost_ = std::chrono::hours(1);  // of the cheapest copy so far
  bool whole_ = true;                                      // no step is half done; guarded by the boundary

  std::mutex attached_;
  std::mutex* boundary_ = nullptr;  // guarded by attached_

  std::mutex mutex_;  // guards newest_ and who reads what
  std::condition_variable published_;
  Snapshot* newest_ = nullptr;
};

}  // namespace harmonics
