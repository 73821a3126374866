#include "engine/execution/input_prefetch.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

constexpr uint64_t kLine = 64;  // cache line; host kernels prefer stream offsets that are multiples of it

// Prefetches by the queue of the steps, so that a plan finds its prefetch without passing it through the layers
// between.
std::mutex known_mutex;
std::map<const DeviceQueue*, InputPrefetch*> known;

uint64_t whole_lines(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

uint64_t sum_of_lines(const std::vector<uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0},
                         [](uint64_t sum, uint64_t b) { return sum + whole_lines(b); });
}

}  // namespace

std::unique_ptr<InputPrefetch> InputPrefetch::open(const ItemPtr& device, const DeviceQueuePtr& steps,
                                                   const std::vector<uint64_t>& bytes, size_t batches) {
  if (!has_host_memory(*device) || !has_events(*device)) return nullptr;
  if (std::all_of(bytes.begin(), bytes.end(), [](uint64_t b) { return b <= kSmallInput; })) return nullptr;
  const auto lock = steps->lock();
  if (on(*steps)) return nullptr;
  return std::unique_ptr<InputPrefetch>(new InputPrefetch(device, steps, bytes, batches));
}

InputPrefetch* InputPrefetch::on(const DeviceQueue& steps) {
  const std::lock_guard lock(known_mutex);
  const auto at = known.find(&steps);
  return at == known.end() ? nullptr : at->second;
}

InputPrefetch::InputPrefetch(const ItemPtr& device, DeviceQueuePtr steps, const std::vector<uint64_t>& bytes,
                             size_t batches)
    : steps_(std::move(steps)),
      own_(std::make_shared<DeviceQueue>(device)),
      batch_bytes_(sum_of_lines(bytes)),
      batches_(batches),
      host_(own_, batch_bytes_ * batches),
      device_(own_, batch_bytes_ * batches) {
  for (uint64_t offset = 0; const uint64_t b : bytes) {
    offsets_.push_back(offset);
    offset += whole_lines(b);
  }
  const std::lock_guard lock(known_mutex);
  known[steps_.get()] = this;
}

// Waits for both queues: no queued work uses the rings after this.
InputPrefetch::~InputPrefetch() {
  const auto lock = steps_->lock();
  {
    const std::lock_guard of_known(known_mutex);
    known.erase(steps_.get());
  }
  for (DeviceQueue* queue : {own_.get(), steps_.get()}) try {
      queue->synchronize();
    } catch (const Error&) {  // a failure was already reported when the results were awaited
    }
}

// A batch that was not taken may still be in transit. One that was taken has arrived, because its run has synchronized
// with the device since.
void InputPrefetch::renew(size_t batch) {
  if (!batches_[batch].taken) own_->synchronize();
  batches_[batch] = {};
}

void InputPrefetch::start(size_t batch, const std::vector<uint64_t>& bytes) {
  for (size_t s = 0; s < bytes.size(); ++s) own_->upload(device_.at(at(batch, s)), host(batch, s), bytes[s]);
  batches_[batch] = {DeviceEvent(own_), false};
  own_->submit();
}

bool InputPrefetch::has(const void* host) const {
  const auto *first = host_.at(0), *wanted = static_cast<const std::byte*>(host);
  return !std::less<>()(wanted, first) && std::less<>()(wanted, first + batch_bytes_ * batches_.size());
}

bool InputPrefetch::take(const void* host, const hx_place& to, uint64_t bytes) {
  if (!has(host)) return false;
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(host) - host_.at(0));
  Batch& batch = batches_[offset / batch_bytes_];
  if (!batch.there) return false;
  if (!std::exchange(batch.taken, true)) batch.there.hold_back(*steps_);
  steps_->copy(to, device_.at(offset), bytes);
  return true;
}

}  // namespace harmonics::engine
