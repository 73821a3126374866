// The thread pool: a range of parts per thread, and work stealing.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/alternate_stack.hpp"
#include "engine/execution/executable.hpp"

namespace harmonics::engine {

namespace {

constexpr int kSpins = 2000, kYields = 50;  // some tens of microseconds, the pause between two kernels of a plan

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

constexpr size_t kLine = 64, kFetchedAtOnce = 1024;
constexpr size_t kLinePair = 128;  // two cache lines, because the adjacent-line prefetcher loads them in pairs

struct Job {
  void (*body)(const void*, uint32_t);
  const void* context;
};

// The parts [begin, end) of a job that one thread has left. The owner takes from the front, where its caches still
// contain data of the previous job. Other threads steal from the back. All members fit one cache line, the only one
// that a waiting thread fetches.
class alignas(kLinePair) Share {
 public:
  void give(const Job& job, uint32_t begin, uint32_t end) {
    job_ = job;
    range_.store(uint64_t{begin} << 32 | end, std::memory_order_seq_cst);
  }
  // Takes effect with the next give(). The values may belong to two jobs: fetching an address has no other effect.
  void expect(const ReadAhead& next) {
    next_.store(next.begin, std::memory_order_relaxed);
    next_bytes_.store(next.bytes, std::memory_order_relaxed);
  }
  // Fetches what the owner reads next into its second-level cache, until it has a job.
  void fetch_next() const {
    for (size_t at = 0; empty() && fetch_next(at);) at += kFetchedAtOnce;
  }
  // Fetches a part of it. Returns false if it ends before `at`.
  bool fetch_next(size_t at) const {
    const std::byte* const begin = next_.load(std::memory_order_relaxed);
    const size_t bytes = next_bytes_.load(std::memory_order_relaxed);
    for (size_t i = at; i < std::min(bytes, at + kFetchedAtOnce); i += kLine) __builtin_prefetch(begin + i, 0, 2);
    return at < bytes;
  }
  // Requires that the caller has taken `part`.
  void run(uint32_t part) const { job_.body(job_.context, part); }
  bool empty() const { return is_empty(range_.load(std::memory_order_seq_cst)); }
  bool take_first(uint32_t& part) {
    return take([&](uint64_t range) { return part = static_cast<uint32_t>(range >> 32), range + (uint64_t{1} << 32); });
  }
  bool take_last(uint32_t& part) {
    return take([&](uint64_t range) { return part = static_cast<uint32_t>(range) - 1, range - 1; });
  }

 private:
  static bool is_empty(uint64_t range) { return static_cast<uint32_t>(range >> 32) >= static_cast<uint32_t>(range); }
  template <typename Rest>
  bool take(Rest rest) {
    uint64_t range = range_.load(std::memory_order_acquire);
    while (!is_empty(range))
      if (range_.compare_exchange_weak(range, rest(range), std::memory_order_acq_rel, std::memory_order_acquire))
        return true;
    return false;
  }

  std::atomic<uint64_t> range_{0};
  Job job_{};
  std::atomic<const std::byte*> next_{nullptr};
  std::atomic<size_t> next_bytes_{0};
};

// A thread that has taken a part may read the job: run() replaces the job only after all parts are done.
class TeamExecutor final : public Executor {
 public:
  explicit TeamExecutor(int threads) : shares_(static_cast<size_t>(threads)) {
    for (size_t i = 1; i < shares_.size(); ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~TeamExecutor() override {
    {
      std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  int threads() const override { return static_cast<int>(shares_.size()); }

  void run(uint32_t parts, void (*body)(const void*, uint32_t), const void* context,
           std::span<const ReadAhead> next) override {
    if (parts == 0) return;
    std::lock_guard one_job(callers_);
    const Job job{body, context};
    left_.store(parts, std::memory_order_relaxed);
    const auto begin = [&](size_t i) {
      return first_part(parts, static_cast<uint32_t>(shares_.size()), static_cast<uint32_t>(i));
    };
    for (size_t i = shares_.size(); i-- > 0;) {
      shares_[i].expect(i < next.size() ? next[i] : ReadAhead());
      shares_[i].give(job, begin(i), begin(i + 1));
    }
    if (parked_.load(std::memory_order_seq_cst) > 0) {
      { std::lock_guard lock(mutex_); }  // a worker about to wait sees the job or gets the notification
      wake_.notify_all();
    }
    take_part(0);
    for (int spins = 0; left_.load(std::memory_order_acquire) != 0; ++spins) {
      if (shares_[0].fetch_next(static_cast<size_t>(spins) * kFetchedAtOnce)) continue;
      spins < kSpins ? relax() : std::this_thread::yield();
    }
  }

 private:
  // Runs the parts of this thread, then steals.
  void take_part(size_t own) {
    uint32_t part = 0, done = 0;
    for (; shares_[own].take_first(part); ++done) shares_[own].run(part);
    for (size_t i = 1; i < shares_.size(); ++i)
      for (Share& other = shares_[(own + i) % shares_.size()]; other.take_last(part); ++done) other.run(part);
    if (done > 0) left_.fetch_sub(done, std::memory_order_acq_rel);
  }

  bool has_work() const {
    for (const Share& s : shares_)
      if (!s.empty()) return true;
    return false;
  }

  // Polls the share of this thread often and the others rarely, because each poll takes the cache line from a working
  // thread.
  bool comes_soon(size_t own) const {
    for (int i = 0; i < kSpins; ++i, relax())
      if (!shares_[own].empty() || (i % 64 == 63 && has_work())) return true;
    for (int i = 0; i < kYields; ++i, std::this_thread::yield())
      if (has_work()) return true;
    return false;
  }

  void work(size_t own) {
    const AlternateStack stack;
    while (!stop_.load(std::memory_order_relaxed)) {
      take_part(own);
      shares_[own].fetch_next();
      if (comes_soon(own)) continue;
      std::unique_lock lock(mutex_);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [this] { return stop_.load() || has_work(); });
      parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  std::vector<Share> shares_;  // index 0: the caller; then the workers
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stop_{false};
  std::atomic<int> parked_{0};
  alignas(kLinePair) std::mutex callers_;             // written for every job, on a cache line that no worker reads
  alignas(kLinePair) std::atomic<uint32_t> left_{0};  // parts not yet done
};

}  // namespace

std::unique_ptr<Executor> make_team_executor(int threads) {
  if (threads <= 1) return make_sequential_executor();
  return std::make_unique<TeamExecutor>(threads);
}

}  // namespace harmonics::engine
