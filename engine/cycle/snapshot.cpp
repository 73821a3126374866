#include "engine/cycle/snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include <time.h>

#include "engine/cycle/last_good.hpp"
#include "engine/execution/device_memory.hpp"
#include "engine/training/update.hpp"

namespace harmonics::engine {

namespace {

// Copying takes at most 1/kLeastShare of the time for weights of any size.
constexpr int kLeastShare = 20;
// A waiting reader checks at this interval whether it can copy while no step runs.
constexpr std::chrono::milliseconds kRetryInterval{1};
// At its end a run waits at most this long for a buffer without readers.
constexpr std::chrono::seconds kLongestRead{5};

// Returns the CPU time of this thread. Other threads do not raise a cost measured with it.
std::chrono::nanoseconds processor_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// Returns whether a number has become infinite or NaN since `before`. Readers do not get such weights.
bool spoilt_since(const Snapshot& before, const ParameterStore& now) {
  for (const auto& [name, t] : before.weights().all()) {
    const auto at = now.all().find(name);
    if (t.role != Role::frozen && !t.fixed && at != now.all().end() && !is_finite(at->second) && is_finite(t))
      return true;
  }
  return false;
}

}  // namespace

void Snapshot::lay_out(const ParameterStore& like, const ParameterStore& store, size_t place) {
  place_ = place;
  laid_out_ = true;
  for (const auto& [name, t] : like.all()) {
    if (t.role == Role::moment || is_accumulator(name)) continue;
    if (t.fixed) {
      store_.share(name, t);
      continue;
    }
    StoredTensor& mine = store_.declare(name, t.type, t.role, hx_init{}, 0);
    mine.layout = t.layout;
    mine.asked = true;
  }
  for (const auto& [name, t] : store.all())
    if (StoredTensor* mine = store_.find(name); mine && !mine->fixed)
      copies_.push_back({&t, mine, &name, t.role == Role::frozen});
}

void Snapshot::fill(const ParameterStore& store, WeightsVersion version,
                    const std::function<bool(const std::string&)>& changes) {
  for (const Copy& c : copies_) {
    if (filled_ && (c.once || (changes && !changes(*c.name)))) continue;
    if (c.from->layout == c.to->layout)
      std::memcpy(c.to->change(), c.from->data(), c.from->type.bytes());
    else
      store.copy(*c.name, c.to->change());  // a later program has transposed the tensor since
  }
  filled_ = true;
  version_ = version;
  taken_ = Clock::now();
}

Snapshots::Snapshots(const ParameterStore& store, WeightsVersion version, Changes changes)
    : store_(store),
      changes_(std::move(changes)),
      cycle_(version.cycle),
      ended_(version.step),
      youth_(Clock::duration(kYoung).count()) {
  take(true);
}

void Snapshots::settle() {
  if (whole_ && newest_->version().step != ended_) take(true);
}

void Snapshots::attach(std::mutex& boundary) {
  const std::lock_guard<std::mutex> lock(attached_);
  boundary_ = &boundary;
}

void Snapshots::detach(bool held) {
  const std::lock_guard<std::mutex> lock(attached_);
  if (!boundary_) return;
  const auto deadline = Clock::now() + kLongestRead;
  for (bool done = false; !done; done = done || Clock::now() >= deadline) {
    {
      std::unique_lock<std::mutex> still(*boundary_, std::defer_lock);
      if (!held) still.lock();
      settle();
      done = !whole_ || newest_->version().step == ended_ || spoilt_since(*newest_, store_);
    }
    if (!done) std::this_thread::sleep_for(kRetryInterval);  // all buffers have readers
  }
  boundary_ = nullptr;
}

bool Snapshots::is_fresh(const Snapshot& s) const {
  return s.version().step == ended_.load(std::memory_order_relaxed) ||
         (Clock::now() - s.taken()).count() < youth_.load(std::memory_order_relaxed);
}

bool Snapshots::due() const {
  return (Clock::now() - newest_->taken()).count() >= youth_.load(std::memory_order_relaxed);
}

// Copies the weights into a buffer without readers. Requires the boundary, so only one thread changes buffers and
// newest_.
void Snapshots::take(bool whatever_the_age) {
  if (!whatever_the_age && !due()) return;
  Snapshot* to = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Snapshot& s : places_)
      if (&s != newest_ && s.readers_ == 0 && (!to || s.laid_out_)) to = &s;
  }
  if (!to) return;  // all buffers have readers: retry after the next step
  if (!to->laid_out_)
    to->lay_out(newest_ ? newest_->weights() : store_, store_, static_cast<size_t>(to - places_.data()));
  const auto begun = processor_time();
  if (newest_ && spoilt_since(*newest_, store_))
    return wanted_.store(false, std::memory_order_relaxed);  // the trainer detects this itself
  to->fill(store_, {cycle_, ended_.load(std::memory_order_relaxed)}, changes_);
  cost_ = std::min(cost_, processor_time() - begun);
  youth_.store(std::max<Clock::duration>(kYoung, kLeastShare * cost_).count(), std::memory_order_relaxed);
  wanted_.store(false, std::memory_order_relaxed);
  taken_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    newest_ = to;
  }
  published_.notify_all();
}

void Snapshots::share_queue(const ItemPtr& device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_) return;
  queue_ = std::make_shared<DeviceQueue>(device);
  for (Snapshot& s : places_) s.store_.use_queue(queue_);
}

// Copies for a waiting reader if no step runs.
void Snapshots::take_idle() {
  const std::lock_guard<std::mutex> lock(attached_);
  if (!boundary_) return;
  const std::unique_lock<std::mutex> still(*boundary_, std::try_to_lock);
  if (still && whole_ && !is_fresh(*newest_)) take(true);
}

std::shared_ptr<const Snapshot> Snapshots::hold(Snapshot& s) {
  ++s.readers_;
  return {&s, [self = shared_from_this()](const Snapshot* held) { self->release(*held); }};
}

void Snapshots::release(const Snapshot& s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --places_[s.place()].readers_;
}

std::shared_ptr<const Snapshot> Snapshots::newest() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return hold(*newest_);
}

std::shared_ptr<const Snapshot> Snapshots::fresh(Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_fresh(*newest_) && Clock::now() < deadline) {
    wanted_.store(true, std::memory_order_relaxed);
    const Snapshot* before = newest_;
    if (published_.wait_until(lock, std::min(deadline, Clock::now() + kRetryInterval),
                              [&] { return newest_ != before; }))
      continue;
    lock.unlock();
    take_idle();
    lock.lock();
  }
  wanted_.store(true, std::memory_order_relaxed);
  return hold(*newest_);
}

}  // namespace harmonics::engine
