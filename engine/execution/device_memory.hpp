// Devices with their own memory: queues, buffers, and tensors mirrored on host and device. Failures reported by a
// device are ErrorKind::Device.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns whether the device has its own memory. Throws ErrorKind::Plugin if its table has only some of the functions
// for it.
bool has_own_memory(const Item& device);
// The device's description; texts are empty and numbers 0 where it gives none.
hx_device_info info_of(const Item& device);
// Throws ErrorKind::Device with the reason and a remedy if the device cannot be used.
void expect_available(const Item& device);

// The handles of the device's driver; `driver` is HX_NATIVE_NONE if it gives none.
hx_native native_of(const Item& device, hx_queue* queue = nullptr);

class DeviceQueue {
 public:
  explicit DeviceQueue(ItemPtr device);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  ~DeviceQueue();

  const Item& device() const { return *device_; }
  hx_queue* raw() const { return queue_; }
  // The caller must not change `from` until synchronize(), or until an event recorded later has been awaited.
  void upload(const hx_place& to, const void* from, uint64_t bytes);
  void download(void* to, const hx_place& from, uint64_t bytes);
  void copy(const hx_place& to, const hx_place& from, uint64_t bytes);
  // For devices with looks_at_numbers(): copies only if the f32 at `number` is finite when the copy executes.
  void copy_if_finite(const hx_place& to, const hx_place& from, uint64_t bytes, const hx_place& number);
  void submit();
  void synchronize();
  // Records work once to launch it as a whole. end_capture() returns null if the work cannot be recorded.
  bool can_capture() const;
  void begin_capture();
  hx_capture* end_capture();
  void launch(hx_capture* capture);
  void release(hx_capture* capture);
  // Throws the device's error unless `status` is HX_OK. `what`: the operation, as in "cannot ...".
  void check(hx_status status, const char* what) const;
  // Hold this lock while using the queue: programs of one store share it.
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

 private:
  const hx_device_vt& table() const { return device_->table<hx_device_vt>(); }

  ItemPtr device_;
  hx_queue* queue_ = nullptr;
  std::recursive_mutex mutex_;
};
using DeviceQueuePtr = std::shared_ptr<DeviceQueue>;

// Device memory; none for 0 bytes. Synchronize queued work that uses it before destruction.
class DeviceBuffer {
 public:
  DeviceBuffer(DeviceQueuePtr queue, uint64_t bytes);
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();
  hx_place at(uint64_t offset) const { return {buffer_, offset}; }

 private:
  DeviceQueuePtr queue_;
  uint64_t buffer_ = 0;
};

// A host tensor mirrored on a device. Each side reports its changes; the other side is updated on its next read.
class DeviceTensor {
 public:
  // `host` must outlive this object.
  DeviceTensor(DeviceQueuePtr queue, void* host, uint64_t bytes)
      : queue_(queue), host_(host), bytes_(bytes), buffer_(queue, bytes) {}

  hx_place place() const { return buffer_.at(0); }
  // Switches to unreported host access: uploads before every use on the device, downloads after every change.
  void share();

  // Device side; the caller holds the queue's lock. The copy queued by prepare() reads host memory until the queue is
  // synchronized.
  void prepare();
  void changed();  // by queued work
  // Host side.
  void fetch();                                    // before reading
  void going_to_change();                          // before writing
  void replace_host(void* host) { host_ = host; }  // a new address with the same contents

 private:
  enum class Newer : uint8_t { neither, host, device };
  DeviceQueuePtr queue_;
  void* host_;
  uint64_t bytes_;
  DeviceBuffer buffer_;
  std::atomic<Newer> newer_ = Newer::host;  // atomic: without a need to copy, no side waits for the queue
  bool shared_ = false;
};

}  // namespace harmonics::engine
