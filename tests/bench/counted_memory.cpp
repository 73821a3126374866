#include "tests/bench/counted_memory.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

namespace harmonics::engine::bench {

CountedMemory heap, aligned;

double peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  return 0;
}

void forget_peaks() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
  heap.peak = heap.live.load();
  aligned.peak = aligned.live.load();
}

}  // namespace harmonics::engine::bench

namespace {

using harmonics::engine::bench::aligned;
using harmonics::engine::bench::heap;

int64_t size_of(void* p) { return static_cast<int64_t>(p ? malloc_usable_size(p) : 0); }

// The allocated aligned blocks with their requested sizes. A block that starts at a huge page is followed by unused
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

// glibc's functions under their alternative names.
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
