// InputPrefetch: copies batches to a device while it works on earlier ones. A separate queue copies batches from a ring
// of pinned host memory to a ring in device memory. When a step takes a batch, the queue of the steps waits for the
// copy; the host does not.
#pragma once

#include <memory>
#include <vector>

#include "engine/execution/staging.hpp"

namespace harmonics::engine {

constexpr uint64_t kSmallInput = 64;  // bytes; smaller inputs are packed and uploaded in one copy

class InputPrefetch {
 public:
  // Creates the prefetch for programs on the queue `steps`: `batches` slots, each with one stream per entry of `bytes`.
  // Returns null if the device lacks host memory or events, if the queue has a prefetch already, or if every stream is
  // small.
  static std::unique_ptr<InputPrefetch> open(const ItemPtr& device, const DeviceQueuePtr& steps,
                                             const std::vector<uint64_t>& bytes, size_t batches);
  // Returns the prefetch of this queue, or null. The queue must be locked.
  static InputPrefetch* on(const DeviceQueue& steps);
  InputPrefetch(const InputPrefetch&) = delete;
  InputPrefetch& operator=(const InputPrefetch&) = delete;
  ~InputPrefetch();

  // Producer side; one thread at a time. Write to host() between renew() and start(), and not again until the run that
  // takes the batch has returned. `bytes`: used bytes of each stream.
  void* host(size_t batch, size_t stream) const { return host_.at(at(batch, stream)); }
  void renew(size_t batch);
  void start(size_t batch, const std::vector<uint64_t>& bytes);

  // Consumer side; the queue must be locked. Returns whether the address is in the ring.
  bool has(const void* host) const;
  // Copies the prefetched data of `host` to `to`. Returns false if `host` is not in the ring or its batch was not
  // started. `bytes` may span several adjacent streams.
  bool take(const void* host, const hx_place& to, uint64_t bytes);

 private:
  struct Batch {
    DeviceEvent there;
    bool taken = true;  // the queue of the steps waits for the copy, or there is none
  };

  InputPrefetch(const ItemPtr& device, DeviceQueuePtr steps, const std::vector<uint64_t>& bytes, size_t batches);
  uint64_t at(size_t batch, size_t stream) const { return batch * batch_bytes_ + offsets_[stream]; }

  DeviceQueuePtr steps_, own_;
  std::vector<uint64_t> offsets_;  // by stream, within a batch
  uint64_t batch_bytes_ = 0;
  std::vector<Batch> batches_;
  HostMemory host_;
  DeviceBuffer device_;
};

}  // namespace harmonics::engine
