// The planned and the measured memory of one case of a workload: peak_memory WORKLOAD BATCH THREADS [APART]. Prints
// one JSON object; exit status 1 if planned and measured differ by more than the share APART:
//
//   planned    bytes of the plan's arena, of parameters and states, and of the prepared samples
//   measured   peak bytes of aligned memory, which holds all numbers, ours and oneDNN's, during some steady steps,
//              less those before the graph was made
//   heap       the same of all memory, including the descriptions of graph and plan
//   resident   peak resident MiB of the whole process during the steps, including libraries and code
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "tests/bench/workload.hpp"

namespace {

struct Heap {
  std::atomic<int64_t> live{0}, peak{0};
  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
};
Heap heap, aligned;

int64_t size_of(void* p) { return static_cast<int64_t>(p ? malloc_usable_size(p) : 0); }

// The allocated aligned blocks with their requested sizes: a block that begins at a huge page is followed by unused
// address space.
class Blocks {
 public:
  void add(void* p, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    Block* block = find(nullptr);
    if (!block && used_ < std::size(blocks_)) block = &blocks_[used_++];
    if (!block) std::abort();  // more than any workload has
    *block = {p, bytes};
  }
  // Returns the requested size; 0: unknown block.
  int64_t take(void* p) {
    if (reinterpret_cast<uintptr_t>(p) % 32 != 0) return 0;
    const std::lock_guard lock(mutex_);
    Block* block = find(p);
    return block ? std::exchange(*block, {}).bytes : 0;
  }

 private:
  struct Block {
    void* at = nullptr;
    int64_t bytes = 0;
  };
  Block* find(void* p) {
    Block* end = blocks_ + used_;
    Block* block = std::find_if(blocks_, end, [&](const Block& b) { return b.at == p; });
    return block == end ? nullptr : block;
  }
  std::mutex mutex_;
  Block blocks_[65536];
  size_t used_ = 0;
};
Blocks blocks;

void* note(void* p) {
  heap.add(size_of(p));
  return p;
}
void* note_aligned(void* p, size_t n) {
  if (!p) return p;
  aligned.add(static_cast<int64_t>(n));
  blocks.add(p, static_cast<int64_t>(n));
  return note(p);
}
void forget(void* p) {
  if (!p) return;
  heap.add(-size_of(p));
  aligned.add(-blocks.take(p));
}

}  // namespace

// glibc's own functions under their alternative names.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t n) { return note(__libc_malloc(n)); }
void* calloc(size_t n, size_t size) { return note(__libc_calloc(n, size)); }
void* realloc(void* p, size_t n) {
  forget(p);
  return note(__libc_realloc(p, n));
}
void* memalign(size_t alignment, size_t n) { return note_aligned(__libc_memalign(alignment, n), n); }
void* aligned_alloc(size_t alignment, size_t n) { return note_aligned(__libc_memalign(alignment, n), n); }
int posix_memalign(void** p, size_t alignment, size_t n) {
  *p = note_aligned(__libc_memalign(alignment, n), n);
  return *p ? 0 : 12;
}
void free(void* p) {
  forget(p);
  __libc_free(p);
}
}
#pragma GCC visibility pop

namespace harmonics::engine::bench {

namespace {

// Resets the system's record of peak memory.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

double peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  return 0;
}

void run(WorkloadStep& step, int times) {
  for (int i = 0; i < times; ++i) step.run();
}

// Returns measured over planned.
double report(const Workload& workload, int64_t batch, int threads) {
  run(*std::make_unique<WorkloadStep>(workload, batch, threads), 3);
  const int64_t heap_before = heap.live, aligned_before = aligned.live;
  WorkloadStep step(workload, batch, threads);
  run(step, 10);
  malloc_trim(0);  // memory used to read the samples
  forget_peak();
  heap.peak = heap.live.load();
  aligned.peak = aligned.live.load();
  run(step, 30);
  const MemoryReport m = step.executable().memory();
  const uint64_t planned = m.arena_bytes + m.state_bytes + step.prepared_bytes();
  const int64_t measured = aligned.peak - aligned_before;
  boost::json::object o{{"name", fmt::format("{}/batch:{}/threads:{}", workload.name, batch, threads)},
                        {"arena", m.arena_bytes},
                        {"states", m.state_bytes},
                        {"samples", step.prepared_bytes()},
                        {"planned", planned},
                        {"measured", measured},
                        {"heap", heap.peak - heap_before},
                        {"resident", peak_resident()}};
  fmt::print("{}\n", boost::json::serialize(o));
  return static_cast<double>(measured) / static_cast<double>(planned);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fmt::print(stderr, "usage: peak_memory WORKLOAD BATCH THREADS [APART]\n");
    return 2;
  }
  try {
    const double ratio = harmonics::engine::bench::report(harmonics::engine::bench::read_workload(argv[1]),
                                                          std::atoll(argv[2]), std::atoi(argv[3]));
    if (argc == 5 && std::abs(ratio - 1) > std::atof(argv[4])) {
      fmt::print(stderr, "measured is {:.4f} of planned\n", ratio);
      return 1;
    }
  } catch (const harmonics::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}
