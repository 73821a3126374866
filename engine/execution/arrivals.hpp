// Batches that travel to a device while it still works on those before: a ring of the host's memory that the device copies from
// without a detour, the same on the device, and a queue of their own between the two. The queue of the steps waits for a batch
// when a step takes it, and not the host.
#pragma once

#include <memory>
#include <vector>

#include "engine/execution/staging.hpp"

namespace harmonics {

constexpr uint64_t kSmallInput = 64;  // bytes: what is no larger goes with the step's own numbers, in one copy

class Arrivals {
 public:
  // For batches of streams of so many bytes each, that programs on the queue `steps` of a device take. Null where the device lacks
  // what it needs, others have theirs on that queue, or all are small.
  static std::unique_ptr<Arrivals> open(const ItemPtr& device, const DeviceQueuePtr& steps, const std::vector<uint64_t>& bytes, size_t batches);
  // Those of programs on this queue; null: there are none. Asked by who holds it.
  static Arrivals* on(const DeviceQueue& steps);
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  ~Arrivals();

  // Who fills batches, a thread at a time: writes there between renew() and start(), and not again before the run that takes the
  // batch has returned. `bytes`: of each stream, from its beginning.
  void* host(size_t batch, size_t stream) const { return host_.at(at(batch, stream)); }
  void renew(size_t batch);
  void start(size_t batch, const std::vector<uint64_t>& bytes);

  // Who holds the queue of the steps: puts what came for this memory of the host there; false: nothing did, it is other memory.
  bool take(const void* host, const hx_place& to, uint64_t bytes);

 private:
  struct Batch {
    DeviceEvent there;
    bool taken = true;  // the queue of the steps waits for it, or nothing is on its way
  };

  Arrivals(const ItemPtr& device, DeviceQueuePtr steps, const std::vector<uint64_t>& bytes, size_t batches);
  uint64_t at(size_t batch, size_t stream) const { return batch * batch_bytes_ + offsets_[stream]; }

  DeviceQueuePtr steps_, own_;
  std::vector<uint64_t> offsets_;  // by stream, within a batch
  uint64_t batch_bytes_ = 0;
  std::vector<Batch> batches_;
  HostMemory host_;
  DeviceBuffer device_;
};

}  // namespace harmonics
