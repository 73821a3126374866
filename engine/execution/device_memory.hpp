// Devices with memory of their own: a queue, buffers, and tensors that live both there and here. What a device says goes wrong
// is ErrorKind::Device.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "engine/plugin/registry.hpp"

namespace harmonics {

// Does it compute in memory of its own? A table that has only some of the functions for it is ErrorKind::Plugin.
bool has_own_memory(const Item& device);
// What it says of itself; empty texts and zeros where it says nothing.
hx_device_info info_of(const Item& device);
// Throws ErrorKind::Device with the reason, and what to do, when nothing can run there.
void expect_available(const Item& device);

class DeviceQueue {
 public:
  explicit DeviceQueue(ItemPtr device);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  ~DeviceQueue();

  const Item& device() const { return *device_; }
  hx_queue* raw() const { return queue_; }
  // Host memory stays as it is until synchronize(), or until an event that was made later is awaited.
  void upload(const hx_place& to, const void* from, uint64_t bytes);
  void download(void* to, const hx_place& from, uint64_t bytes);
  void copy(const hx_place& to, const hx_place& from, uint64_t bytes);
  // Where the device looks at numbers (staging.hpp): `to` keeps what it holds unless the f32 at `number` is finite by then.
  void copy_if_finite(const hx_place& to, const hx_place& from, uint64_t bytes, const hx_place& number);
  void submit();
  void synchronize();
  // Work that is recorded once and put on the queue as a whole from then on. end_capture: null when this work cannot be recorded.
  bool can_capture() const;
  void begin_capture();
  hx_capture* end_capture();
  void launch(hx_capture* capture);
  void release(hx_capture* capture);
  // Throws unless `status` is HX_OK: what the device was asked to do, and why it did not.
  void check(hx_status status, const char* what) const;
  // Held by who uses the queue: programs of one store share it.
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

 private:
  const hx_device_vt& table() const { return device_->table<hx_device_vt>(); }

  ItemPtr device_;
  hx_queue* queue_ = nullptr;
  std::recursive_mutex mutex_;
};
using DeviceQueuePtr = std::shared_ptr<DeviceQueue>;

// Memory of a device; of no bytes, none. Whoever queued work on it waits for that before the buffer goes.
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

// A tensor of the host that is also on a device. Whoever changes it on one side says so, and the other follows when it is read.
class DeviceTensor {
 public:
  // `host` outlives it.
  DeviceTensor(DeviceQueuePtr queue, void* host, uint64_t bytes) : queue_(queue), host_(host), bytes_(bytes), buffer_(queue, bytes) {}

  hx_place place() const { return buffer_.at(0); }
  // From now on others, who say nothing, read and change it on the host: it goes there after every change and comes from there before every use.
  void share();

  // The device's side, by those who run programs there and hold the queue. What prepare() queues reads the host's memory until the queue is synchronized.
  void prepare();
  void changed();  // by what is queued
  // The host's side.
  void fetch();          // it is going to be read
  void going_to_change();  // and then changed
  void replace_host(void* host) { host_ = host; }  // the same numbers elsewhere

 private:
  enum class Newer : uint8_t { neither, host, device };
  DeviceQueuePtr queue_;
  void* host_;
  uint64_t bytes_;
  DeviceBuffer buffer_;
  Newer newer_ = Newer::host;
  bool shared_ = false;
};

}  // namespace harmonics
