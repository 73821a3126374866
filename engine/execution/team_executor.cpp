// A team of threads made of atomics, one mutex and one condition variable.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/execution/executable.hpp"

namespace harmonics {

namespace {

constexpr int kSpins = 2000;  // some tens of microseconds, the pause between two kernels of a plan

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// A job is a word {number of the job, parts not yet taken}. Whoever takes a part by lowering the word may read the job's
// fields: the caller of run() writes them only after every part taken is done.
class TeamExecutor final : public Executor {
 public:
  explicit TeamExecutor(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~TeamExecutor() override {
    {
      std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  int threads() const override { return static_cast<int>(workers_.size()) + 1; }

  void run(uint32_t parts, void (*body)(const void*, uint32_t), const void* context) override {
    if (parts == 0) return;
    std::lock_guard one_job(callers_);
    body_ = body;
    context_ = context;
    left_.store(parts, std::memory_order_relaxed);
    ++number_;
    job_.store(uint64_t{number_} << 32 | parts, std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) > 0) {
      { std::lock_guard lock(mutex_); }  // a worker about to wait has seen the job or hears the call
      wake_.notify_all();
    }
    while (take_one()) {
    }
    for (int spins = 0; left_.load(std::memory_order_acquire) != 0; ++spins) spins < kSpins ? relax() : std::this_thread::yield();
  }

 private:
  bool take_one() {
    uint64_t word = job_.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(word) != 0) {
      if (!job_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      body_(context_, static_cast<uint32_t>(word) - 1);
      left_.fetch_sub(1, std::memory_order_acq_rel);
      return true;
    }
    return false;
  }

  bool has_work() const { return static_cast<uint32_t>(job_.load(std::memory_order_seq_cst)) != 0; }

  void work() {
    while (!stop_.load(std::memory_order_relaxed)) {
      if (take_one()) continue;
      for (int spins = 0; spins < kSpins && !has_work(); ++spins) relax();
      if (has_work()) continue;
      std::unique_lock lock(mutex_);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [this] { return stop_.load() || has_work(); });
      parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  std::vector<std::thread> workers_;
  std::mutex callers_, mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stop_{false};
  std::atomic<int> parked_{0};
  alignas(64) std::atomic<uint64_t> job_{0};
  void (*body_)(const void*, uint32_t) = nullptr;
  const void* context_ = nullptr;
  uint32_t number_ = 0;
  alignas(64) std::atomic<uint32_t> left_{0};  // parts not yet done
};

}  // namespace

std::unique_ptr<Executor> make_team_executor(int threads) {
  if (threads <= 1) return make_sequential_executor();
  return std::make_unique<TeamExecutor>(threads);
}

}  // namespace harmonics
