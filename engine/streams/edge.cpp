#include "engine/streams/edge.hpp"

#include <algorithm>
#include <cstring>

#include "engine/base/alternate_stack.hpp"

namespace harmonics::engine {

std::optional<EdgePolicy> parse_edge_policy(const std::string& text) {
  if (text == "block") return EdgePolicy::block;
  if (text == "drop_oldest") return EdgePolicy::drop_oldest;
  if (text == "latest") return EdgePolicy::latest;
  return std::nullopt;
}

Edge::Edge(Source& source, const EdgeOptions& options, uint64_t step)
    : source_(source), policy_(options.policy), bytes_(source.sample_bytes()) {
  const uint64_t fitting = options.most_bytes / std::max<size_t>(bytes_, 1);
  if (fitting == 0)
    throw Error(ErrorKind::Usage, "stream '" + source.name() + "': hold=" + std::to_string(options.most_bytes) +
                                      " is less than one sample of " + std::to_string(bytes_) + " bytes");
  most_ = fitting;
  capacity_ = policy_ == EdgePolicy::latest ? std::min(fitting, step) : fitting;
  ring_.resize(capacity_ * bytes_);
  marks_.resize(capacity_);
}

Edge::~Edge() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  if (!thread_.joinable()) return;
  source_.cancel();
  thread_.join();
}

// Queues a sample. Returns false if the Edge is being destroyed.
bool Edge::put(const std::byte* sample, const SampleMark& mark) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (policy_ == EdgePolicy::block) room_.wait(lock, [this] { return waiting_ < capacity_ || stopping_; });
  if (stopping_) return false;
  if (waiting_ == capacity_) {
    first_ = (first_ + 1) % capacity_;
    --waiting_;
    ++dropped_;
  }
  const size_t at = (first_ + waiting_++) % capacity_;
  std::memcpy(ring_.data() + at * bytes_, sample, bytes_);
  marks_[at] = mark;
  lock.unlock();
  filled_.notify_one();
  return true;
}

void Edge::run() {
  const AlternateStack stack;
  std::exception_ptr failure;
  try {
    std::vector<std::byte> sample(bytes_);
    while (true) {
      SampleMark mark{source_.position(), {source_.position(), 0}};
      if (source_.read(1, sample.data()) == 0) break;
      if (!source_.numbers().empty()) mark.number = source_.numbers().front();
      if (!put(sample.data(), mark)) break;
    }
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
    ended_ = true;
  }
  filled_.notify_one();
}

uint64_t Edge::read(uint64_t n, std::byte* to, SampleMark* marks, std::optional<Clock::time_point> until) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  const auto come = [this] { return waiting_ > 0 || ended_; };
  if (until)
    filled_.wait_until(lock, *until, come);
  else
    filled_.wait(lock, come);
  if (waiting_ == 0 && failure_) std::rethrow_exception(failure_);
  const uint64_t got = std::min<uint64_t>(n, waiting_);
  for (uint64_t done = 0; done < got;) {
    const size_t count = std::min<size_t>(got - done, capacity_ - first_);
    std::memcpy(to + done * bytes_, ring_.data() + first_ * bytes_, count * bytes_);
    std::copy_n(marks_.begin() + static_cast<std::ptrdiff_t>(first_), count, marks + done);
    first_ = (first_ + count) % capacity_;
    waiting_ -= count;
    done += count;
  }
  lock.unlock();
  if (got > 0) room_.notify_one();
  return got;
}

void Edge::set_step(uint64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t capacity = policy_ == EdgePolicy::latest ? std::min<size_t>(most_, step) : capacity_;
  if (capacity == capacity_) return;
  std::vector<std::byte> ring(capacity * bytes_);
  std::vector<SampleMark> marks(capacity);
  const size_t kept = std::min(waiting_, capacity);
  const size_t gone = waiting_ - kept;
  for (size_t i = 0; i < kept; ++i) {
    const size_t at = (first_ + gone + i) % capacity_;
    std::memcpy(ring.data() + i * bytes_, ring_.data() + at * bytes_, bytes_);
    marks[i] = marks_[at];
  }
  ring_ = std::move(ring);
  marks_ = std::move(marks);
  capacity_ = capacity;
  first_ = 0;
  waiting_ = kept;
  dropped_ += gone;
}

bool Edge::ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_ && waiting_ == 0;
}

uint64_t Edge::dropped() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return dropped_;
}

uint64_t Edge::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_;
}

}  // namespace harmonics::engine
