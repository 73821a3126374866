// Counts all heap allocations of the process on request.
#pragma once

#include <cstdint>

namespace harmonics::engine::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsAllocations = false;  // sanitizers replace malloc themselves
#else
inline constexpr bool kCountsAllocations = true;
#endif

void start_counting();
uint64_t stop_counting();  // allocations on all threads since start_counting()

}  // namespace harmonics::engine::testing
