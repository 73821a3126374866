#include "engine/execution/staging.hpp"

#include <cstring>

#include <fmt/core.h>

#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

const hx_device_vt& table_of(const DeviceQueue& queue) { return queue.device().table<hx_device_vt>(); }

}  // namespace

bool has_host_memory(const Item& device) {
  const auto& t = device.table<hx_device_vt>();
  return HM_TABLE_HAS(t, allocate_host) && HM_TABLE_HAS(t, release_host);
}
bool has_events(const Item& device) {
  const auto& t = device.table<hx_device_vt>();
  return HM_TABLE_HAS(t, record) && HM_TABLE_HAS(t, wait) && HM_TABLE_HAS(t, release_event);
}
bool has_clock(const Item& device) {
  const auto& t = device.table<hx_device_vt>();
  const bool records = HM_TABLE_HAS(t, record_time), tells = HM_TABLE_HAS(t, elapsed);
  if (records != tells || (records && !has_events(device)))
    throw Error(ErrorKind::Plugin,
                fmt::format("device '{}' has some of the functions for event times, but not all", device.name), {},
                {"record_time, elapsed, record, wait and release_event belong together"});
  return records;
}

bool looks_at_numbers(const Item& device) {
  const auto& t = device.table<hx_device_vt>();
  const bool copies = HM_TABLE_HAS(t, copy_if_finite), awaits = HM_TABLE_HAS(t, await_event);
  if (copies != awaits || (copies && !(has_events(device) && has_host_memory(device))))
    throw Error(
        ErrorKind::Plugin,
        fmt::format("device '{}' has some of the functions for conditional updates, but not all", device.name), {},
        {"copy_if_finite, await_event, record, wait, release_event, allocate_host and release_host belong together"});
  return copies;
}

HostMemory::HostMemory(DeviceQueuePtr queue, uint64_t bytes) : queue_(std::move(queue)) {
  if (bytes == 0) return;
  if (!has_host_memory(queue_->device())) {
    own_ = std::make_unique<Storage>(bytes);
    data_ = static_cast<std::byte*>(own_->data());
    return;
  }
  void* data = nullptr;
  queue_->check(table_of(*queue_).allocate_host(queue_->device().self, bytes, &data),
                fmt::format("give {} bytes of the host's memory", bytes).c_str());
  data_ = static_cast<std::byte*>(data);
  std::memset(data_, 0, bytes);
}
HostMemory::~HostMemory() {
  if (data_ && !own_) table_of(*queue_).release_host(queue_->device().self, data_);
}

DeviceEvent::DeviceEvent(DeviceQueuePtr queue) : queue_(std::move(queue)) {
  queue_->check(table_of(*queue_).record(queue_->device().self, queue_->raw(), &event_), "mark a point of a queue");
}
DeviceEvent DeviceEvent::timed(DeviceQueuePtr queue) {
  DeviceEvent made;
  if (!has_clock(queue->device())) return made;
  const hx_status status = table_of(*queue).record_time(queue->device().self, queue->raw(), &made.event_);
  if (status != HX_OK) made.event_ = nullptr;
  if (status == HX_DECLINED) return made;
  queue->check(status, "keep a time");
  made.queue_ = std::move(queue);
  return made;
}
DeviceEvent& DeviceEvent::operator=(DeviceEvent&& other) noexcept {
  reset();
  queue_ = std::move(other.queue_);
  event_ = std::exchange(other.event_, nullptr);
  return *this;
}
void DeviceEvent::hold_back(DeviceQueue& queue) const {
  queue.check(table_of(queue).wait(queue.device().self, queue.raw(), event_), "make a queue wait for another");
}
void DeviceEvent::await() const {
  queue_->check(table_of(*queue_).await_event(queue_->device().self, event_), "finish what is queued");
}
std::optional<double> DeviceEvent::since(const DeviceEvent& earlier) const {
  constexpr double kMost = 1e8;  // seconds, about three years; larger values are errors
  double seconds = 0;
  const hx_status status = table_of(*queue_).elapsed(queue_->device().self, earlier.event_, event_, &seconds);
  if (status == HX_DECLINED) return std::nullopt;
  queue_->check(status, "measure the time between events");
  if (!(seconds >= 0 && seconds <= kMost))
    throw Error(ErrorKind::Device, fmt::format("device '{}' reports {} seconds between two events of its queue",
                                               queue_->device().name, seconds));
  return seconds;
}
void DeviceEvent::reset() {
  if (event_) table_of(*queue_).release_event(queue_->device().self, std::exchange(event_, nullptr));
}

}  // namespace harmonics::engine
