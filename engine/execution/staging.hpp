// What lies between the host and a device beside its queues: memory that both reach without a detour, and points of queues that others
// wait for. Devices need not have them; what a device says goes wrong is ErrorKind::Device.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/execution/device_memory.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

bool has_host_memory(const Item& device);
bool has_events(const Item& device);

// Memory of the host that a device copies from and to without a detour, where it has such; else any. Zeroed.
class HostMemory {
 public:
  HostMemory(DeviceQueuePtr queue, uint64_t bytes);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();
  std::byte* at(uint64_t offset) const { return data_ + offset; }

 private:
  DeviceQueuePtr queue_;
  std::unique_ptr<Storage> own_;
  std::byte* data_ = nullptr;
};

// A point of a queue: everything queued before it was made.
class DeviceEvent {
 public:
  DeviceEvent() = default;  // none
  explicit DeviceEvent(DeviceQueuePtr queue);
  DeviceEvent(DeviceEvent&& other) noexcept : queue_(std::move(other.queue_)), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent() { reset(); }
  explicit operator bool() const { return event_ != nullptr; }
  // What is queued there from now on, on a queue of the same device, waits for this point; the host does not.
  void hold_back(DeviceQueue& queue) const;

 private:
  void reset();

  DeviceQueuePtr queue_;
  hx_event* event_ = nullptr;
};

}  // namespace harmonics
