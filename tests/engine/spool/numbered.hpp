// A sender for tests of the spool: numbered samples, dropped when they are durable. Several streams of one source share
// a sender.
#pragma once

#include <condition_variable>
#include <mutex>

#include <harmonics/stream.hpp>

namespace harmonics::engine::testing {

class NumberedSender {
 public:
  explicit NumberedSender(uint64_t n) : arrived(n) {}
  void arrive(uint64_t until) {
    const std::lock_guard<std::mutex> lock(mutex);
    arrived = until;
    changed.notify_all();
  }
  uint64_t durable_until() {
    const std::lock_guard<std::mutex> lock(mutex);
    return durable;
  }

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t arrived;
  uint64_t durable = 0;
  bool over = false;                           // no further samples follow
  bool goes_on = false;                        // the stream does not end with its sender
  bool end_told = false, end_durable = false;  // a position contained the end; the end was acknowledged
};

// Sample i is {i * scale, i * scale + 1}.
class Numbered final : public Producer {
 public:
  static constexpr int64_t kClasses = 5000;
  Numbered(NumberedSender& sender, int64_t scale) : sender_(sender), scale_(scale) {}
  HTensor next() override {
    std::unique_lock<std::mutex> lock(sender_.mutex);
    sender_.changed.wait(lock,
                         [this] { return at_ < sender_.arrived || (sender_.over && !sender_.goes_on) || cancelled_; });
    if (cancelled_ || at_ >= sender_.arrived) return {};
    if (at_ == fails_at) throw Error(ErrorKind::Unavailable, "the sender is gone");
    const auto value = static_cast<int64_t>(at_++);
    const int64_t row[2] = {value * scale_, value * scale_ + 1};
    return HTensor(DType::I64, Shape{2}, row);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::I64;
    info.sample = Shape{2};
    info.live = true;
    info.classes = kClasses;
    return info;
  }
  bool restore(uint64_t index, const std::string& position) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    const std::string at = index ? "at " + std::to_string(index) : "";
    if (position != at && position != at + " over")
      throw Error(ErrorKind::Stream, "sample " + std::to_string(index) + " and position '" + position + "'");
    if (index < sender_.durable)
      throw Error(ErrorKind::Stream,
                  "sample " + std::to_string(index) + " was said to be durable and is asked for again");
    restored = index;
    at_ = index;
    return true;
  }
  std::string position(uint64_t index) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    const bool ends = sender_.over && index == sender_.arrived;
    sender_.end_told |= ends;
    return (index ? "at " + std::to_string(index) : "") + (ends ? " over" : "");
  }
  void durable(uint64_t index) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    sender_.durable = std::max(sender_.durable, index);
    sender_.end_durable |= sender_.end_told && index == sender_.arrived;
  }
  bool cancel() override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    cancelled_ = true;
    sender_.changed.notify_all();
    return true;
  }

  // Numbers have gaps, and another sender from sample 40 on.
  static SampleNumber number_of(uint64_t sample) {
    return sample < 40 ? SampleNumber{sample + sample / 7, 1} : SampleNumber{sample - 40, 2};
  }
  bool numbers(uint64_t n, SampleNumber* to) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    for (uint64_t i = at_ - n; i < at_; ++i) *to++ = number_of(i);
    return true;
  }

  uint64_t fails_at = UINT64_MAX;
  uint64_t restored = UINT64_MAX;

 private:
  NumberedSender& sender_;
  int64_t scale_;
  uint64_t at_ = 0;
  bool cancelled_ = false;
};

}  // namespace harmonics::engine::testing
