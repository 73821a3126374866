// Counts the heap allocations of C++ code in the program and its libraries.
#pragma once

#include <cstdint>

namespace harmonics::engine::cli {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsAllocations = false;  // sanitizers have their own operator new
#else
inline constexpr bool kCountsAllocations = true;
#endif

uint64_t allocations_made();  // number of calls of operator new since the start

}  // namespace harmonics::engine::cli
