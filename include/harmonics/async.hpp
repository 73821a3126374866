// AsyncProducer: prefetches from another producer on its own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <harmonics/wrappers.hpp>

namespace harmonics {

// Reading pauses while `capacity` samples are queued. next() or read() rethrows an exception of the source after the
// samples before it. rewind() and the destructor wait for the sample that is being read.
class AsyncProducer final : public SampleWiseProducer {
 public:
  AsyncProducer(std::shared_ptr<Producer> inner, std::size_t capacity)
      : SampleWiseProducer(std::move(inner)),
        capacity_(capacity),
        given_capacity_(capacity),
        size_(inner_->size()),
        info_(inner_->describe()) {
    if (capacity == 0) throw Error(ErrorKind::Usage, "async: at least 1 sample waits");
    if (size_) capacity_ = std::min(capacity_, size_);  // reading stops at the end of a pass
    char none = 0;
    if (!info_ || inner_->read(0, &none) < 0) return;  // samples are read one by one
    bytes_ = info_->sample_bytes();
    const auto bytes = checked_product(bytes_, capacity_);
    try {
      if (!bytes || *bytes > ring_.max_size()) throw std::bad_alloc();
      ring_.resize(*bytes);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorKind::Usage,
                  "async: " + std::to_string(capacity_) + " samples of " + std::to_string(bytes_) +
                      " bytes need more memory than is available; use a smaller queue, for example async=256");
    }
  }
  ~AsyncProducer() override { stop(); }
  WrapperOption option() const override {
    return {WrapperOption::Acts::Anywhere, "async=" + std::to_string(given_capacity_)};
  }

  HTensor next() override {
    std::unique_lock<std::mutex> lock(mutex_);
    begin_numbers();
    if (!await(lock)) return {};
    HTensor sample;
    if (bytes_) {
      lock.unlock();  // the thread does not access queued samples
      if (numbered()) add_numbers(&numbers_[first_], 1);
      sample = HTensor(info_->dtype, info_->sample, ring_.data() + first_ * bytes_);
      lock.lock();
      first_ = (first_ + 1) % capacity_;
    } else {
      if (numbered()) add_numbers(&samples_.front().second, 1);
      sample = std::move(samples_.front().first);
      samples_.pop_front();
    }
    --waiting_;
    room_.notify_one();
    return sample;
  }
  std::size_t size() const override { return size_; }
  std::optional<StreamInfo> describe() override { return info_; }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n == 0 && bytes_) numbers_.resize(capacity_);
    return SampleWiseProducer::numbers(n, to);
  }
  int64_t read(uint64_t n, void* to) override {
    if (!bytes_) return -1;
    uint64_t got = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    begin_numbers();
    while (got < n && await(lock)) {
      const std::size_t k = std::min<std::size_t>({n - got, waiting_, capacity_ - first_});
      lock.unlock();
      std::memcpy(static_cast<char*>(to) + got * bytes_, ring_.data() + first_ * bytes_, k * bytes_);
      if (numbered()) add_numbers(&numbers_[first_], k);
      lock.lock();
      first_ = (first_ + k) % capacity_;
      waiting_ -= k;
      got += k;
      room_.notify_one();
    }
    return static_cast<int64_t>(got);
  }

 private:
  // Drops queued samples.
  bool go_to(uint64_t index) override {
    stop();
    first_ = waiting_ = 0;
    samples_.clear();
    failure_ = nullptr;
    ended_ = false;
    return inner_->seek(epoch(), index);
  }
  // Waits for a sample; returns false at the end. Starts the thread if necessary.
  bool await(std::unique_lock<std::mutex>& lock) {
    if (!thread_.joinable() && !ended_) thread_ = std::thread([this] { run(); });
    filled_.wait(lock, [this] { return waiting_ > 0 || ended_; });
    if (waiting_ > 0) return true;
    if (failure_) std::rethrow_exception(failure_);
    return false;
  }

  void run() {
    try {
      while (bytes_ ? fill_ring() : fill_one()) {
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    filled_.notify_one();
  }

  // Waits for free space; returns the number of samples that fit contiguously, 0 if stopped.
  std::size_t await_room() {
    std::unique_lock<std::mutex> lock(mutex_);
    room_.wait(lock, [this] { return stopping_ || waiting_ < capacity_; });
    const std::size_t end = (first_ + waiting_) % capacity_;
    last_ = end;
    return stopping_ ? 0 : std::min(capacity_ - waiting_, capacity_ - end);
  }
  bool fill_ring() {
    // Reads in small pieces, so that the first samples are available early.
    const std::size_t n = std::min<std::size_t>(await_room(), std::max<std::size_t>(capacity_ / 4, 1));
    if (n == 0) return false;
    const int64_t got = inner_->read(n, ring_.data() + last_ * bytes_);
    if (got < 0) throw Error(ErrorKind::Plugin, "async: the producer gave blocks of samples and then refused to");
    if (numbered() && got > 0) fetch_numbers(static_cast<uint64_t>(got), &numbers_[last_]);
    publish(static_cast<std::size_t>(got));
    return static_cast<std::size_t>(got) == n;
  }
  bool fill_one() {
    if (await_room() == 0) return false;
    HTensor sample = inner_->next();
    if (!sample) return false;
    SampleNumber number{};
    if (numbered()) fetch_numbers(1, &number);
    const std::lock_guard<std::mutex> lock(mutex_);
    samples_.emplace_back(std::move(sample), number);
    ++waiting_;
    filled_.notify_one();
    return true;
  }
  void fetch_numbers(uint64_t n, SampleNumber* to) {
    if (!inner_->numbers(n, to))
      throw Error(ErrorKind::Plugin, "async: the producer announced numbered samples and then gave no numbers");
  }
  void publish(std::size_t n) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_ += n;
    filled_.notify_one();
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    if (thread_.joinable()) thread_.join();
    stopping_ = false;
  }

  std::size_t capacity_, given_capacity_, size_;
  std::optional<StreamInfo> info_;
  std::size_t bytes_ = 0;                                 // of one sample; 0: the source returns them one by one
  std::vector<char> ring_;                                // queued samples if bytes_ > 0 ...
  std::deque<std::pair<HTensor, SampleNumber>> samples_;  // ... else here
  std::vector<SampleNumber> numbers_;                     // of the samples in the ring, if requested
  std::size_t first_ = 0, waiting_ = 0, last_ = 0;
  bool ended_ = false, stopping_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable filled_, room_;
  std::thread thread_;
};

}  // namespace harmonics
