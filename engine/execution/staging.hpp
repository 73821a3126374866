// Optional features of devices: host memory with direct device access, events, clocks. Errors reported by a device are
// thrown as ErrorKind::Device.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "engine/execution/device_memory.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

bool has_host_memory(const Item& device);
bool has_events(const Item& device);
// Returns whether the device times events. Throws ErrorKind::Plugin if its table has only one of the two functions, or
// lacks events. The device may still keep no times; see DeviceEvent::since.
bool has_clock(const Item& device);

// Returns whether the device supports copies conditional on a finite number, and events that the host can wait for.
// Throws ErrorKind::Plugin if its table has only one of the two, or lacks events or host memory.
bool looks_at_numbers(const Item& device);

// Zeroed host memory, with direct device access if supported.
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

// A point in a queue, complete when all work queued before it is complete.
class DeviceEvent {
 public:
  DeviceEvent() = default;  // empty
  explicit DeviceEvent(DeviceQueuePtr queue);
  // Returns an event with a timestamp, or an empty event if the device has no clock.
  static DeviceEvent timed(DeviceQueuePtr queue);
  DeviceEvent(DeviceEvent&& other) noexcept
      : queue_(std::move(other.queue_)), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent() { reset(); }
  explicit operator bool() const { return event_ != nullptr; }
  // Makes work queued later on `queue`, which is of the same device, wait for this event. Does not block the host.
  void hold_back(DeviceQueue& queue) const;
  // Blocks the host until the event is complete.
  void await() const;
  // Returns the seconds since an earlier event, or nothing if no times were kept. Both events must be timed and belong
  // to one queue that was synchronized after them.
  std::optional<double> since(const DeviceEvent& earlier) const;

 private:
  void reset();

  DeviceQueuePtr queue_;
  hx_event* event_ = nullptr;
};

}  // namespace harmonics::engine
