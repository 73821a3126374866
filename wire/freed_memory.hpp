// Memory that glibc keeps after large messages are freed.
#pragma once

#include <malloc.h>

#include <cstdlib>

namespace harmonics::wire {

// Sets fixed limits for the whole process: blocks below 32 MiB come from heaps, and a heap keeps at most 8 MiB of free
// memory at its end. By default glibc raises both limits with the blocks that are freed; below the first one it zeroes
// the pages of each message, and up to 64 MiB at the end of a heap remain after malloc_trim(). Has no effect if the
// user sets MALLOC_TRIM_THRESHOLD_ or GLIBC_TUNABLES.
inline void limit_freed_memory() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") || std::getenv("GLIBC_TUNABLES")) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest frame, and the maximum of glibc's own limit
  mallopt(M_TRIM_THRESHOLD, 8 << 20);   // the size of message bursts
#endif
}

}  // namespace harmonics::wire
