#include "engine/execution/device_peaks.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/kernel_source.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kSide = 1024;
constexpr int kTimes = 3, kProducts = 4, kWaits = 50;
constexpr uint64_t kCopied = uint64_t{64} << 20;  // minimum copied between two clock reads

class DeviceYardsticks final : public MachinePeaks {
 public:
  DeviceYardsticks(const ItemPtr& device, KernelSource kernels, int threads)
      : MachinePeaks(threads),
        on_processor_(info_of(*device).sort == HX_DEVICE_CPU),
        queue_(std::make_shared<DeviceQueue>(device)),
        kernels_(std::move(kernels)) {}

  std::string instructions() const override {
    return on_processor_ ? MachinePeaks::instructions()
                         : fmt::format("products of {} squared by its own kernel, copies within its memory", kSide);
  }
  double waiting() override {
    if (waiting_ == 0) {
      const DeviceBuffer room(queue_, 128);
      waiting_ = fastest(kWaits, [&] { queue_->copy(room.at(64), room.at(0), sizeof(float)); });
    }
    return waiting_;
  }

 protected:
  double measured_peak() override {
    if (on_processor_) return MachinePeaks::measured_peak();
    const TensorType square{DType::F32, {kSide, kSide}};
    const KernelPtr kernel = kernels_.find("dot",
                                           AttributeMap()
                                               .set("lhs_contract", std::vector<int64_t>{1})
                                               .set("rhs_contract", std::vector<int64_t>{0})
                                               .set("lhs_batch", std::vector<int64_t>{})
                                               .set("rhs_batch", std::vector<int64_t>{}),
                                           {square, square}, {square});
    if (!kernel || !kernel->is_queued()) return 0;
    const DeviceBuffer a(queue_, square.bytes()), b(queue_, square.bytes()), c(queue_, square.bytes()),
        workspace(queue_, kernel->raw().workspace);
    const std::vector<std::byte> zeros(square.bytes());
    for (const DeviceBuffer* buffer : {&a, &b}) queue_->upload(buffer->at(0), zeros.data(), zeros.size());
    const hx_place places[] = {a.at(0), b.at(0), c.at(0), workspace.at(0)};
    const double seconds = fastest(kTimes, [&] {
      for (int i = 0; i < kProducts; ++i)
        queue_->check(kernel->raw().enqueue(kernel->raw().context, queue_->raw(), places), "queue a product");
    });
    return 2.0 * kSide * kSide * kSide * kProducts / seconds;
  }

  // Copies count twice, as read and as write.
  double measured_bandwidth(size_t bytes) override {
    if (on_processor_) return MachinePeaks::measured_bandwidth(bytes);
    const uint64_t half = std::max<uint64_t>(bytes / 2, 64), times = std::max<uint64_t>(1, kCopied / half);
    const DeviceBuffer from(queue_, half), to(queue_, half);
    return static_cast<double>(2 * half * times) / fastest(kTimes, [&] {
             for (uint64_t i = 0; i < times; ++i) queue_->copy(to.at(0), from.at(0), half);
           });
  }

 private:
  template <typename Body>
  double fastest(int times, const Body& body) {
    using Clock = std::chrono::steady_clock;
    const auto lock = queue_->lock();
    double best = 0;
    for (int i = 0; i <= times; ++i) {  // the first iteration warms up
      queue_->synchronize();
      const auto start = Clock::now();
      body();
      queue_->synchronize();
      const double seconds = std::max(1e-9, std::chrono::duration<double>(Clock::now() - start).count());
      if (i == 1 || (i > 1 && seconds < best)) best = seconds;
    }
    return best;
  }

  bool on_processor_;
  DeviceQueuePtr queue_;
  KernelSource kernels_;
  double waiting_ = 0;
};

}  // namespace

std::unique_ptr<MachinePeaks> make_peaks(const DeviceSettings& device, Registry& registry, int threads) {
  const ItemPtr item = registry.find(HX_DEVICE, device.device);
  if (!item || !has_own_memory(*item)) return std::make_unique<MachinePeaks>(threads);
  return std::make_unique<DeviceYardsticks>(item, KernelSource(device.device, registry, device.precision), threads);
}

}  // namespace harmonics::engine
