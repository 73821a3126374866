// Devices with their own memory: queues, buffers and copies in addition to the kernels of device.hpp. Contract:
// hx_device_vt in abi.h.
#pragma once

#include <cstdio>
#include <optional>

#include <harmonics/function.hpp>

namespace harmonics {

// Functions throw on failure. Kernels set hx_kernel::enqueue instead of run.
class MemoryDevice : public Device {
 public:
  // `unavailable` is the reason why the device cannot be used; other functions are called only if it is "".
  virtual hx_device_info info() = 0;
  virtual hx_queue* open_queue() = 0;
  virtual void close_queue(hx_queue* queue) = 0;
  virtual uint64_t allocate(uint64_t bytes) = 0;
  virtual void release(uint64_t buffer) = 0;
  virtual void upload(hx_queue* queue, const hx_place& to, const void* from, uint64_t bytes) = 0;
  virtual void download(hx_queue* queue, void* to, const hx_place& from, uint64_t bytes) = 0;
  virtual void copy(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes) = 0;
  virtual void synchronize(hx_queue* queue) = 0;
  virtual void submit(hx_queue* queue) { (void)queue; }
  // Sets the driver's handles, with that of `queue` if it is not null, for kernels of implementations. False:
  // unsupported.
  virtual bool native(hx_queue* queue, hx_native& out) { return (void)queue, (void)out, false; }
  virtual bool stages() const { return false; }    // whether it is a StagingDevice
  virtual bool captures() const { return false; }  // whether it is a CapturingDevice
};

// A device with pinned host memory and events between queues: uploads of batches overlap with computation on earlier
// ones.
class StagingDevice : public MemoryDevice {
 public:
  virtual void* allocate_host(uint64_t bytes) = 0;
  virtual void release_host(void* memory) = 0;
  virtual hx_event* record(hx_queue* queue) = 0;
  virtual void wait(hx_queue* queue, hx_event* event) = 0;
  virtual void release_event(hx_event* event) = 0;
  // record_time: as record, with a timestamp; null: unsupported. elapsed: returns the seconds from one such event to a
  // later one of the same queue, both completed by synchronize; nullopt: no timestamps.
  virtual hx_event* record_time(hx_queue* queue) { return (void)queue, nullptr; }
  virtual std::optional<double> elapsed(hx_event* from, hx_event* to) { return (void)from, (void)to, std::nullopt; }
  // looks_at_numbers: whether it has the next two functions, and kernels with enqueue_if_finite; whole training steps
  // are then enqueued at once. copy_if_finite: copies if the f32 at `number` is finite. await_event: blocks the host
  // until the event.
  virtual bool looks_at_numbers() const { return false; }
  virtual void copy_if_finite(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes,
                              const hx_place& number) {
    (void)queue, (void)to, (void)from, (void)bytes, (void)number;
  }
  virtual void await_event(hx_event* event) { (void)event; }
  bool stages() const final { return true; }
};

// A device that records work once and launches it as a whole.
class CapturingDevice : public StagingDevice {
 public:
  virtual void begin_capture(hx_queue* queue) = 0;
  virtual hx_capture* end_capture(hx_queue* queue) = 0;  // null: not capturable; the work is dropped
  virtual void launch(hx_queue* queue, hx_capture* capture) = 0;
  virtual void release_capture(hx_capture* capture) = 0;
  bool captures() const final { return true; }
};

// Writes a text to a field of hx_device_info, truncated.
template <size_t N>
HARMONICS_FACE void put_text(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

namespace detail {

HARMONICS_FACE inline MemoryDevice& memory_device(void* self) {
  return **static_cast<std::shared_ptr<MemoryDevice>*>(self);
}

// A function of the table that calls a member function.
template <auto Function, typename... Arguments>
HARMONICS_FACE hx_status call_device(void* self, Arguments... arguments) {
  return guarded([&] { return (memory_device(self).*Function)(arguments...), HX_OK; });
}

HARMONICS_FACE inline const hx_device_vt* memory_device_vt() {
  static const hx_device_vt table = [] {
    hx_device_vt vt{};
    vt.struct_size = sizeof vt;
    vt.describe = [](void* self) -> const char* {
      thread_local std::string text;
      guarded([&] { return text = memory_device(self).describe(), HX_OK; });
      return text.c_str();
    };
    vt.find = [](void* self, const hx_call_site* site, hx_kernel* out) {
      return guarded([&] { return memory_device(self).find(*site, *out) ? HX_OK : HX_DECLINED; });
    };
    vt.destroy = [](void* self) { delete static_cast<std::shared_ptr<MemoryDevice>*>(self); };
    vt.flags = [](void* self) -> uint32_t { return memory_device(self).roundings(); };
    vt.info = [](void* self, hx_device_info* out) {
      return guarded([&] {
        const uint32_t room = std::min<uint32_t>(out->struct_size, sizeof(hx_device_info));
        const hx_device_info info = memory_device(self).info();
        std::memcpy(out, &info, room);
        return out->struct_size = room, HX_OK;
      });
    };
    vt.open_queue = [](void* self, hx_queue** out) {
      return guarded([&] { return *out = memory_device(self).open_queue(), HX_OK; });
    };
    vt.close_queue = [](void* self, hx_queue* queue) { call_device<&MemoryDevice::close_queue>(self, queue); };
    vt.allocate = [](void* self, uint64_t bytes, uint64_t* buffer) {
      return guarded([&] { return *buffer = memory_device(self).allocate(bytes), HX_OK; });
    };
    vt.release = [](void* self, uint64_t buffer) { call_device<&MemoryDevice::release>(self, buffer); };
    vt.upload = [](void* self, hx_queue* queue, const hx_place* to, const void* from, uint64_t bytes) {
      return guarded([&] { return memory_device(self).upload(queue, *to, from, bytes), HX_OK; });
    };
    vt.download = [](void* self, hx_queue* queue, void* to, const hx_place* from, uint64_t bytes) {
      return guarded([&] { return memory_device(self).download(queue, to, *from, bytes), HX_OK; });
    };
    vt.copy = [](void* self, hx_queue* queue, const hx_place* to, const hx_place* from, uint64_t bytes) {
      return guarded([&] { return memory_device(self).copy(queue, *to, *from, bytes), HX_OK; });
    };
    vt.synchronize = [](void* self, hx_queue* queue) { return call_device<&MemoryDevice::synchronize>(self, queue); };
    vt.submit = [](void* self, hx_queue* queue) { return call_device<&MemoryDevice::submit>(self, queue); };
    vt.native = [](void* self, hx_queue* queue, hx_native* out) {
      return guarded([&] {
        hx_native given{};
        if (!memory_device(self).native(queue, given)) return HX_DECLINED;
        given.struct_size = std::min<uint32_t>(out->struct_size, sizeof given);
        std::memcpy(out, &given, given.struct_size);
        return HX_OK;
      });
    };
    return vt;
  }();
  return &table;
}

HARMONICS_FACE inline StagingDevice& staging_device(void* self) {
  return static_cast<StagingDevice&>(memory_device(self));
}
HARMONICS_FACE inline CapturingDevice& capturing_device(void* self) {
  return static_cast<CapturingDevice&>(memory_device(self));
}

template <auto Function, typename... Arguments>
HARMONICS_FACE hx_status call_staging(void* self, Arguments... arguments) {
  return guarded([&] { return (staging_device(self).*Function)(arguments...), HX_OK; });
}
template <auto Function, typename... Arguments>
HARMONICS_FACE hx_status call_capturing(void* self, Arguments... arguments) {
  return guarded([&] { return (capturing_device(self).*Function)(arguments...), HX_OK; });
}

HARMONICS_FACE inline const hx_device_vt* staging_device_vt() {
  static const hx_device_vt table = [] {
    hx_device_vt vt = *memory_device_vt();
    vt.allocate_host = [](void* self, uint64_t bytes, void** out) {
      return guarded([&] { return *out = staging_device(self).allocate_host(bytes), HX_OK; });
    };
    vt.release_host = [](void* self, void* memory) { call_staging<&StagingDevice::release_host>(self, memory); };
    vt.record = [](void* self, hx_queue* queue, hx_event** out) {
      return guarded([&] { return *out = staging_device(self).record(queue), HX_OK; });
    };
    vt.wait = [](void* self, hx_queue* queue, hx_event* event) {
      return call_staging<&StagingDevice::wait>(self, queue, event);
    };
    vt.release_event = [](void* self, hx_event* event) { call_staging<&StagingDevice::release_event>(self, event); };
    vt.record_time = [](void* self, hx_queue* queue, hx_event** out) {
      return guarded([&] { return (*out = staging_device(self).record_time(queue)) ? HX_OK : HX_DECLINED; });
    };
    vt.elapsed = [](void* self, hx_event* from, hx_event* to, double* seconds) {
      return guarded([&] {
        const std::optional<double> kept = staging_device(self).elapsed(from, to);
        return kept ? (*seconds = *kept, HX_OK) : HX_DECLINED;
      });
    };
    return vt;
  }();
  return &table;
}

HARMONICS_FACE inline const hx_device_vt* capturing_device_vt() {
  static const hx_device_vt table = [] {
    hx_device_vt vt = *staging_device_vt();
    vt.begin_capture = [](void* self, hx_queue* queue) {
      return call_capturing<&CapturingDevice::begin_capture>(self, queue);
    };
    vt.end_capture = [](void* self, hx_queue* queue, hx_capture** out) {
      return guarded([&] { return (*out = capturing_device(self).end_capture(queue)) ? HX_OK : HX_DECLINED; });
    };
    vt.launch = [](void* self, hx_queue* queue, hx_capture* capture) {
      return call_capturing<&CapturingDevice::launch>(self, queue, capture);
    };
    vt.release_capture = [](void* self, hx_capture* capture) {
      call_capturing<&CapturingDevice::release_capture>(self, capture);
    };
    return vt;
  }();
  return &table;
}

// The table kTable with conditional updates.
template <const hx_device_vt* (*kTable)()>
HARMONICS_FACE const hx_device_vt* looking_device_vt() {
  static const hx_device_vt table = [] {
    hx_device_vt vt = *kTable();
    vt.copy_if_finite = [](void* self, hx_queue* queue, const hx_place* to, const hx_place* from, uint64_t bytes,
                           const hx_place* number) {
      return guarded([&] { return staging_device(self).copy_if_finite(queue, *to, *from, bytes, *number), HX_OK; });
    };
    vt.await_event = [](void* self, hx_event* event) { return call_staging<&StagingDevice::await_event>(self, event); };
    return vt;
  }();
  return &table;
}

HARMONICS_FACE inline const hx_device_vt* table_of(const MemoryDevice& device) {
  if (!device.stages()) return memory_device_vt();
  const bool looks = static_cast<const StagingDevice&>(device).looks_at_numbers();
  if (device.captures()) return looks ? looking_device_vt<capturing_device_vt>() : capturing_device_vt();
  return looks ? looking_device_vt<staging_device_vt>() : staging_device_vt();
}

}  // namespace detail

HARMONICS_FACE inline void FunctionRegistry::register_memory_device(const std::string& name,
                                                                    std::shared_ptr<MemoryDevice> device,
                                                                    const std::string& description) {
  const hx_device_vt* table = device ? detail::table_of(*device) : nullptr;
  add(HX_DEVICE, name, description, {}, 0, detail::held(std::move(device), "device", name),
      [table] { return static_cast<const void*>(table); });
}

}  // namespace harmonics
