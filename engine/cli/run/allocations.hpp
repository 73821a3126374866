// Counts the heap allocations of the program's C++ code, libraries included.
#pragma once

#include <cstdint>

namespace harmonics::engine::cli {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsAllocations = false;  // the sanitizers have their own operator new
#else
inline constexpr bool kCountsAllocations = true;
#endif

uint64_t allocations_made();  // since the start; every call of operator new counts as one

}  // namespace harmonics::engine::cli
