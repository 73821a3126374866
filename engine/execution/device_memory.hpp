// Devices with their own memory: queues, buffers, and tensors mirrored on host and device. Errors reported by a device
// are thrown as ErrorKind::Device.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns whether the device has its own memory. Throws ErrorKind::Plugin if its table has only some of the required
// functions.
bool has_own_memory(const Item& device);
// Returns the description of the device. Texts are empty and numbers 0 if it gives none.
hx_device_info info_of(const Item& device);
// Throws ErrorKind::Device with the reason and a remedy if the device is unavailable.
void expect_available(const Item& device);

// Returns the native handles of the device's driver; `driver` is HX_NATIVE_NONE if it gives none.
hx_native native_of(const Item& device, hx_queue* queue = nullptr);

class DeviceQueue {
 public:
  explicit DeviceQueue(ItemPtr device);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  ~DeviceQueue();

  const Item& device() const { return *device_; }
  hx_queue* raw() const { return queue_; }
  // `from` must not change until synchronize(), or until an event recorded later has completed.
  void upload(const hx_place& to, const void* from, uint64_t bytes);
  void download(void* to, const hx_place& from, uint64_t bytes);
  void copy(const hx_place& to, const hx_place& from, uint64_t bytes);
  // Copies only if the f32 at `number` is finite when the copy executes. Requires looks_at_numbers().
  void copy_if_finite(const hx_place& to, const hx_place& from, uint64_t bytes, const hx_place& number);
  void submit();
  void synchronize();
  // Record work once, to be launched as a whole. end_capture() returns null if the work cannot be recorded.
  bool can_capture() const;
  void begin_capture();
  hx_capture* end_capture();
  void launch(hx_capture* capture);
  void release(hx_capture* capture);
  // Throws the error of the device unless `status` is HX_OK. `what` completes "cannot ...".
  void check(hx_status status, const char* what) const;
  // Must be held while the queue is used, because programs of one store share it.
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

 private:
  const hx_device_vt& table() const { return device_->table<hx_device_vt>(); }

  ItemPtr device_;
  hx_queue* queue_ = nullptr;
  std::recursive_mutex mutex_;
};
using DeviceQueuePtr = std::shared_ptr<DeviceQueue>;

// Device memory; 0 bytes allocate nothing. Queued work that uses it must be synchronized before destruction.
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

// A tensor mirrored on host and device. Each side reports its changes, and the other side is updated when it reads
// next.
class DeviceTensor {
 public:
  // `host` must outlive this object.
  DeviceTensor(DeviceQueuePtr queue, void* host, uint64_t bytes)
      : queue_(queue), host_(host), bytes_(bytes), buffer_(queue, bytes) {}
  // Without host memory: the tensor is only on the device, where its contents are uninitialised.
  DeviceTensor(DeviceQueuePtr queue, uint64_t bytes) : DeviceTensor(queue, nullptr, bytes) { newer_ = Newer::neither; }

  hx_place place() const { return buffer_.at(0); }
  uint64_t bytes() const { return bytes_; }
  // For host access that is not reported: uploads before every use on the device, downloads after every change.
  void share();

  // Called by the device side with the queue locked. prepare() queues a copy from host memory, which must not change
  // until the queue is synchronized.
  void prepare();
  void changed();  // by queued work
  // Called by the host side.
  void fetch();                                    // before reading
  void going_to_change();                          // before writing
  void replace_host(void* host) { host_ = host; }  // sets a new address with the same contents

 private:
  enum class Newer : uint8_t { neither, host, device };
  DeviceQueuePtr queue_;
  void* host_;
  uint64_t bytes_;
  DeviceBuffer buffer_;
  std::atomic<Newer> newer_ = Newer::host;  // atomic, so that no side locks the queue unless a copy is needed
  bool shared_ = false;
};

}  // namespace harmonics::engine
