// A separate stack for signal handlers of the current thread, so that a stack overflow can be reported.
#pragma once

#include <csignal>
#include <cstddef>

#include <sys/mman.h>

namespace harmonics::engine {

// Does nothing if the allocation fails or the thread already has such a stack.
class AlternateStack {
 public:
  AlternateStack() {
    stack_t present{};
    if (::sigaltstack(nullptr, &present) != 0 || !(present.ss_flags & SS_DISABLE)) return;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    const stack_t stack{memory, 0, kBytes};
    if (::sigaltstack(&stack, nullptr) == 0)
      memory_ = memory;
    else
      ::munmap(memory, kBytes);
  }
  ~AlternateStack() {
    if (!memory_) return;
    const stack_t none{nullptr, SS_DISABLE, 0};
    ::sigaltstack(&none, nullptr);
    ::munmap(memory_, kBytes);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  static constexpr size_t kBytes = size_t{128} << 10;  // pages are allocated on first use
  void* memory_ = nullptr;
};

}  // namespace harmonics::engine
