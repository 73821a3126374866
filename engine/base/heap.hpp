// How a program of ours keeps its heap.
#pragma once

#include <malloc.h>

namespace harmonics {

// For main() of a program that receives: memory that was freed stays the program's, for the next message of its size.
// Given back to the system, as glibc does from the first 128 KiB on, its pages are zeroed anew for each: a tenth of the
// time that large frames take. 32 MiB is as far as glibc's own limit moves by itself, and more than the largest frame.
// Process-wide, so no library calls it.
inline void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kMost = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kMost);
  mallopt(M_TRIM_THRESHOLD, kMost);
#endif
}

}  // namespace harmonics
