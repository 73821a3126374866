#include "engine/cli/run/allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/base/out_of_memory.hpp"

namespace {

std::atomic<uint64_t> made{0};

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

void* counted(void* p, std::size_t size) {
  made.fetch_add(1, std::memory_order_relaxed);
  if (!p) throw harmonics::engine::OutOfMemory(size);
  return p;
}

std::size_t at_least_one(std::size_t size) { return size ? size : 1; }

}  // namespace

// The array and nothrow forms of the standard library call these. They are not inlined, because compilers would warn
// about free() of memory from new.
__attribute__((noinline)) void* operator new(std::size_t size) {
  return counted(std::malloc(at_least_one(size)), size);
}
__attribute__((noinline)) void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(a, (at_least_one(size) + a - 1) / a * a), size);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

#endif

namespace harmonics::engine::cli {

uint64_t allocations_made() { return made.load(std::memory_order_relaxed); }

}  // namespace harmonics::engine::cli
