#include "engine/execution/device_memory.hpp"

#include <fmt/core.h>

#include "engine/execution/executable.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

bool has_own_memory(const Item& device) {
  const auto& t = device.table<hx_device_vt>();
  const bool has[] = {HM_TABLE_HAS(t, open_queue), HM_TABLE_HAS(t, close_queue), HM_TABLE_HAS(t, allocate),
                      HM_TABLE_HAS(t, release),    HM_TABLE_HAS(t, upload),      HM_TABLE_HAS(t, download),
                      HM_TABLE_HAS(t, copy),       HM_TABLE_HAS(t, synchronize)};
  size_t n = 0;
  for (const bool b : has) n += b;
  if (n != 0 && n != std::size(has))
    throw Error(ErrorKind::Plugin,
                fmt::format("device '{}' has some of the functions for device memory, but not all", device.name), {},
                {"open_queue, close_queue, allocate, release, upload, download, copy and synchronize belong together"});
  return n != 0;
}

hx_device_info info_of(const Item& device) {
  const auto& t = device.table<hx_device_vt>();
  hx_device_info info{};
  info.struct_size = sizeof info;
  if (!HM_TABLE_HAS(t, info)) return info;
  if (t.info(device.self, &info) != HX_OK) {
    const char* why = detail::api()->last_error(nullptr);
    throw Error(ErrorKind::Device,
                fmt::format("device '{}' failed to describe itself: {}", device.name, why ? why : "no reason given"));
  }
  for (char* end : {std::end(info.name), std::end(info.driver), std::end(info.capability), std::end(info.unavailable)})
    end[-1] = '\0';
  return info;
}

void expect_available(const Item& device) {
  const hx_device_info info = info_of(device);
  if (info.unavailable[0])
    throw Error(ErrorKind::Device, fmt::format("device '{}' cannot be used: {}", device.name, info.unavailable), {},
                {"'--device auto' uses an accelerator if there is one, otherwise the CPU"});
}

hx_native native_of(const Item& device, hx_queue* queue) {
  const auto& t = device.table<hx_device_vt>();
  hx_native native{};
  native.struct_size = sizeof native;
  if (!HM_TABLE_HAS(t, native) || !has_own_memory(device)) return native;
  const hx_status status = t.native(device.self, queue, &native);
  if (status == HX_OK) return native;
  if (status != HX_DECLINED) {
    const char* why = detail::api()->last_error(nullptr);
    throw Error(ErrorKind::Device, fmt::format("device '{}' could not give its driver's handles: {}", device.name,
                                               why && *why ? why : "no reason given"));
  }
  native = {};
  return native;
}

DeviceQueue::DeviceQueue(ItemPtr device) : device_(std::move(device)) {
  expect_available(*device_);
  check(table().open_queue(device_->self, &queue_), "open a queue");
}
DeviceQueue::~DeviceQueue() {
  if (queue_) table().close_queue(device_->self, queue_);
}

void DeviceQueue::check(hx_status status, const char* what) const {
  if (status == HX_OK) return;
  const char* why = status == HX_ERROR ? detail::api()->last_error(nullptr) : nullptr;
  throw Error(ErrorKind::Device,
              fmt::format("device '{}' could not {}: {}", device_->name, what, why && *why ? why : "no reason given"));
}

void DeviceQueue::upload(const hx_place& to, const void* from, uint64_t bytes) {
  if (bytes) check(table().upload(device_->self, queue_, &to, from, bytes), "copy to its memory");
}
void DeviceQueue::download(void* to, const hx_place& from, uint64_t bytes) {
  if (bytes) check(table().download(device_->self, queue_, to, &from, bytes), "copy from its memory");
}
void DeviceQueue::copy(const hx_place& to, const hx_place& from, uint64_t bytes) {
  if (bytes) check(table().copy(device_->self, queue_, &to, &from, bytes), "copy within its memory");
}
void DeviceQueue::copy_if_finite(const hx_place& to, const hx_place& from, uint64_t bytes, const hx_place& number) {
  if (bytes) check(table().copy_if_finite(device_->self, queue_, &to, &from, bytes, &number), "copy within its memory");
}
void DeviceQueue::submit() {
  if (HM_TABLE_HAS(table(), submit)) check(table().submit(device_->self, queue_), "start what is queued");
}
bool DeviceQueue::can_capture() const {
  const hx_device_vt& t = table();
  return HM_TABLE_HAS(t, begin_capture) && HM_TABLE_HAS(t, end_capture) && HM_TABLE_HAS(t, launch) &&
         HM_TABLE_HAS(t, release_capture);
}
void DeviceQueue::begin_capture() { check(table().begin_capture(device_->self, queue_), "begin to record its work"); }
hx_capture* DeviceQueue::end_capture() {
  hx_capture* capture = nullptr;
  const hx_status status = table().end_capture(device_->self, queue_, &capture);
  if (status == HX_DECLINED) return nullptr;
  check(status, "record its work");
  return capture;
}
void DeviceQueue::launch(hx_capture* capture) {
  check(table().launch(device_->self, queue_, capture), "start recorded work");
}
void DeviceQueue::release(hx_capture* capture) { table().release_capture(device_->self, capture); }
void DeviceQueue::synchronize() { check(table().synchronize(device_->self, queue_), "finish what is queued"); }

DeviceBuffer::DeviceBuffer(DeviceQueuePtr queue, uint64_t bytes) : queue_(std::move(queue)) {
  if (bytes == 0) return;
  const Item& device = queue_->device();
  queue_->check(device.table<hx_device_vt>().allocate(device.self, bytes, &buffer_),
                fmt::format("give {} bytes of memory", bytes).c_str());
}
DeviceBuffer::~DeviceBuffer() {
  if (buffer_) queue_->device().table<hx_device_vt>().release(queue_->device().self, buffer_);
}

void DeviceTensor::share() {
  fetch();
  shared_ = true;
}
void DeviceTensor::prepare() {
  if (newer_ != Newer::host && !shared_) return;
  queue_->upload(place(), host_, bytes_);
  newer_ = Newer::neither;
}
void DeviceTensor::changed() {
  if (!host_) return;
  newer_ = Newer::device;
  if (shared_) fetch();
}
void DeviceTensor::fetch() {
  if (newer_ != Newer::device) return;
  const auto lock = queue_->lock();
  if (newer_ != Newer::device) return;
  queue_->download(host_, place(), bytes_);
  queue_->synchronize();
  newer_ = Newer::neither;
}
void DeviceTensor::going_to_change() {
  fetch();
  newer_ = Newer::host;
}

DeviceQueuePtr TensorBinding::queue_on(const ItemPtr& device) { return std::make_shared<DeviceQueue>(device); }
std::shared_ptr<DeviceTensor> TensorBinding::parameter_on(const DeviceQueuePtr& queue, const std::string& name,
                                                          const TensorType& type) {
  auto tensor = std::make_shared<DeviceTensor>(queue, parameter(name, type), type.bytes());
  tensor->share();
  return tensor;
}

}  // namespace harmonics::engine
