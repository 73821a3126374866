// Counts a whole program's memory: linking counted_memory.cpp replaces malloc.
#pragma once

#include <atomic>
#include <cstdint>

namespace harmonics::engine::bench {

struct CountedMemory {
  std::atomic<int64_t> live{0}, peak{0};  // bytes
  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
};
extern CountedMemory heap;     // all memory
extern CountedMemory aligned;  // explicitly aligned blocks: all numbers, ours and oneDNN's

double peak_resident();  // of the process in MiB, since forget_peaks()
void forget_peaks();

}  // namespace harmonics::engine::bench
