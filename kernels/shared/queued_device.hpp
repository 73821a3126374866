// Shared parts of devices with command queues (OpenCL, CUDA).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <harmonics/device.hpp>

#include "kernels/shared/types.hpp"

namespace harmonics::kernels {

constexpr int64_t kMostElements = int64_t{1} << 31;  // kernels use 32-bit indices
constexpr uint32_t kLooked = ~0u;                    // argument: the number that a kernel checks; null if none

// Declines empty tensors and tensors beyond 32-bit indices.
inline bool can_index(const hx_type& t) {
  if (count(t) == 0) return declined("leaves tensors without elements to the host");
  return count(t) < kMostElements || declined("counts elements in 31 bits");
}

// The connection to the device, opened on first use. A failure is final. Thread-safe.
template <typename Machine>
class Connection {
 public:
  explicit Connection(std::function<std::unique_ptr<Machine>()> open) : open_(std::move(open)) {}

  // Opens the connection if necessary. Returns the reason for a failure; "": it is open.
  std::string unavailable() const {
    const std::lock_guard lock(mutex_);
    if (machine_ || !unavailable_.empty()) return unavailable_;
    try {
      machine_ = open_();
    } catch (const std::exception& e) {
      unavailable_ = e.what();
    }
    return unavailable_;
  }
  // Throws ErrorKind::Device with the reason if the connection failed.
  Machine& machine() const {
    if (const std::string why = unavailable(); !why.empty()) throw Error(ErrorKind::Device, why);
    return *machine_;
  }

 private:
  std::function<std::unique_ptr<Machine>()> open_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Machine> machine_;
  mutable std::string unavailable_;
};

template <typename Work>
hx_status enqueue_work(const void* context, hx_queue* queue, const hx_place* places, const hx_place* number) {
  try {
    static_cast<const Work*>(context)->enqueue(queue, places, number);
    return HX_OK;
  } catch (const std::exception& e) {
    detail::api()->set_error(HX_ERROR_DEVICE, e.what());
    return HX_ERROR;
  }
}

// Fills `out` with a kernel that owns `work` and calls work.enqueue(queue, places, number). `looks`: the work can check
// a number first; otherwise `number` is null.
template <typename Work>
hx_kernel& answer(hx_kernel& out, Work work, bool looks, const char* name) {
  out.struct_size = std::min<uint32_t>(out.struct_size, sizeof(hx_kernel));
  const bool has_room = out.struct_size >= offsetof(hx_kernel, enqueue_if_finite) + sizeof out.enqueue_if_finite;
  if (looks && has_room) out.enqueue_if_finite = enqueue_work<Work>;
  out.run = nullptr;
  out.phases = 0;
  out.workspace = 0;
  out.in_place = 0;
  out.name = name;
  out.context = new Work(std::move(work));
  out.destroy = [](void* p) { delete static_cast<Work*>(p); };
  out.enqueue = [](const void* context, hx_queue* queue, const hx_place* places) {
    return enqueue_work<Work>(context, queue, places, nullptr);
  };
  return out;
}

}  // namespace harmonics::kernels
