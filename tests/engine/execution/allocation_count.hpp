// Counts every heap allocation of the process while asked to, whoever makes it.
#pragma once

#include <cstdint>

namespace harmonics::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsAllocations = false;  // the sanitizers have their own malloc
#else
inline constexpr bool kCountsAllocations = true;
#endif

void start_counting();
uint64_t stop_counting();  // allocations since start_counting(), on all threads

}  // namespace harmonics::testing
