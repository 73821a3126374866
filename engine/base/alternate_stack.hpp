// A stack of its own for handlers of signals, of the thread that makes it: one that has used up its stack can still say
// so.
#pragma once

#include <csignal>
#include <cstddef>

#include <sys/mman.h>

namespace harmonics {

// Where the system has no memory for it, or the thread has one already, nothing changes.
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
  static constexpr size_t kBytes = size_t{128} << 10;  // a page of it is real until it is used
  void* memory_ = nullptr;
};

}  // namespace harmonics
