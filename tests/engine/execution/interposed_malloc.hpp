// Implementation of allocation_count.hpp: replaces malloc and related functions. Include in exactly one source of a
// test executable.
#pragma once

#include <atomic>
#include <cstdlib>

#include "tests/engine/execution/allocation_count.hpp"

namespace {
std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// glibc's functions under their internal names; ours are exported, so that plugins and their libraries use them.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static void note_allocation() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
void* malloc(size_t n) { return note_allocation(), __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return note_allocation(), __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return note_allocation(), __libc_realloc(p, n); }
void* memalign(size_t alignment, size_t n) { return note_allocation(), __libc_memalign(alignment, n); }
void* aligned_alloc(size_t alignment, size_t n) { return note_allocation(), __libc_memalign(alignment, n); }
int posix_memalign(void** p, size_t alignment, size_t n) {
  note_allocation();
  *p = __libc_memalign(alignment, n);
  return *p ? 0 : 12;
}
}
#pragma GCC visibility pop
#endif

namespace harmonics::engine::testing {

void start_counting() {
  allocations = 0;
  counting = true;
}
uint64_t stop_counting() {
  counting = false;
  return allocations;
}

}  // namespace harmonics::engine::testing
