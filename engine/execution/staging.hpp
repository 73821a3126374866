// What lies between the host and a device beside its queues: memory that both reach without a detour, and points of queues that others
// wait for, or that keep the time. Devices need not have them; what a device says goes wrong is ErrorKind::Device.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "engine/execution/device_memory.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

bool has_host_memory(const Item& device);
bool has_events(const Item& device);
// Times between points of its queues. One function without the other, or without events, is ErrorKind::Plugin. With them a device may
// still keep none: see DeviceEvent::timed.
bool has_clock(const Item& device);

// Copies that look at a number before, and events that the host waits for. One without the other, or without events and host memory,
// is ErrorKind::Plugin.
bool looks_at_numbers(const Item& device);

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
  // One that keeps the time at which its queue came there; none where the device keeps no times.
  static DeviceEvent timed(DeviceQueuePtr queue);
  DeviceEvent(DeviceEvent&& other) noexcept : queue_(std::move(other.queue_)), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent() { reset(); }
  explicit operator bool() const { return event_ != nullptr; }
  // What is queued there from now on, on a queue of the same device, waits for this point; the host does not.
  void hold_back(DeviceQueue& queue) const;
  // The host waits until its queue has come there.
  void await() const;
  // Seconds since an earlier one; both are timed, and of one queue that was synchronized since. Nothing: none were kept.
  std::optional<double> since(const DeviceEvent& earlier) const;

 private:
  void reset();

  DeviceQueuePtr queue_;
  hx_event* event_ = nullptr;
};

}  // namespace harmonics
