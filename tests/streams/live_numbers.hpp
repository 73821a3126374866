// A live producer in memory, whose samples are their indices. It records the calls it receives.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics::engine {

class LiveNumbers final : public Producer {
 public:
  // Returns the samples below `arrived`, then waits for more.
  explicit LiveNumbers(uint64_t arrived) : arrived_(arrived) {}

  HTensor next() override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return at_ < arrived_ || ended_; });
    if (at_ >= arrived_) return {};
    const auto value = static_cast<int64_t>(at_++);
    return HTensor(DType::I64, Shape{}, &value);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::I64;
    info.live = true;
    return info;
  }
  bool restore(uint64_t index, const std::string& position) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    restored.emplace_back(position);
    at_ = index;
    return true;
  }
  std::string position(uint64_t index) override { return "before " + std::to_string(index) + padding; }
  void durable(uint64_t index) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    durable_.push_back(index);
  }
  bool cancel() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    return true;
  }
  std::optional<StreamHealth> health() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return told;
  }

  void arrive(uint64_t more) {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived_ += more;
    changed_.notify_all();
  }
  std::vector<uint64_t> durable_until() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return durable_;
  }
  void tell(const StreamHealth& health) {
    const std::lock_guard<std::mutex> lock(mutex_);
    told = health;
  }

  std::vector<std::string> restored;
  std::string padding;  // appended to a position
  StreamHealth told;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t arrived_, at_ = 0;
  bool ended_ = false;
  std::vector<uint64_t> durable_;
};

}  // namespace harmonics::engine
