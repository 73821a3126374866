// Optional device features besides queues: host memory with direct device access, events, clocks. Failures reported by
// a device are ErrorKind::Device.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "engine/execution/device_memory.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

bool has_host_memory(const Item& device);
bool has_events(const Item& device);
// Returns whether the device times events. Throws ErrorKind::Plugin if its table has one of the functions without the
// other, or lacks events. The device may still have no times, see DeviceEvent::timed.
bool has_clock(const Item& device);

// Returns whether the device supports copies conditional on a finite number, and events the host can wait for. Throws
// ErrorKind::Plugin if its table has one without the other, or lacks events or host memory.
bool looks_at_numbers(const Item& device);

// Zeroed host memory with direct device access where supported, else ordinary memory.
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

// A point of a queue: complete when everything queued before it is.
class DeviceEvent {
 public:
  DeviceEvent() = default;  // empty
  explicit DeviceEvent(DeviceQueuePtr queue);
  // An event with a timestamp; empty if the device has no clock.
  static DeviceEvent timed(DeviceQueuePtr queue);
  DeviceEvent(DeviceEvent&& other) noexcept
      : queue_(std::move(other.queue_)), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent() { reset(); }
  explicit operator bool() const { return event_ != nullptr; }
  // Makes work queued later on `queue`, of the same device, wait for this event; does not block the host.
  void hold_back(DeviceQueue& queue) const;
  // Blocks the host until the event is complete.
  void await() const;
  // Seconds since an earlier event. Both are timed and of one queue that was synchronized since. Empty: no times were
  // kept.
  std::optional<double> since(const DeviceEvent& earlier) const;

 private:
  void reset();

  DeviceQueuePtr queue_;
  hx_event* event_ = nullptr;
};

}  // namespace harmonics::engine
