#include <optional>

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include "engine/execution/executable.hpp"

namespace harmonics {

namespace {

class SequentialExecutor final : public Executor {
 public:
  int threads() const override { return 1; }
  void run(uint32_t parts, void (*body)(const void*, uint32_t), const void* context) override {
    for (uint32_t part = 0; part < parts; ++part) body(context, part);
  }
};

// The calling thread takes part: the arena holds a place for it.
class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads) : threads_(threads), arena_(threads) {
    // TBB gives more workers than there are cores only when told to.
    if (threads > tbb::info::default_concurrency())
      limit_.emplace(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
  }
  int threads() const override { return threads_; }
  void run(uint32_t parts, void (*body)(const void*, uint32_t), const void* context) override {
    arena_.execute([=] {
      tbb::parallel_for(uint32_t{0}, parts, [=](uint32_t part) { body(context, part); }, tbb::static_partitioner());
    });
  }

 private:
  int threads_;
  std::optional<tbb::global_control> limit_;
  tbb::task_arena arena_;
};

}  // namespace

std::unique_ptr<Executor> make_sequential_executor() { return std::make_unique<SequentialExecutor>(); }

std::unique_ptr<Executor> make_tbb_executor(int threads) {
  if (threads <= 1) return make_sequential_executor();
  return std::make_unique<TbbExecutor>(threads);
}

}  // namespace harmonics
