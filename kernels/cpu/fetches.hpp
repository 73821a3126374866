// How far ahead products of few rows fetch a weight that is larger than the caches.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// Distances in bytes at which they fetch a packed weight: into the L2 cache, which has more outstanding misses than the
// L1 cache, and from there into the L1 cache, since loads that wait for the L2 cache fill the window in which the
// processor finds work. 0: left to the prefetcher of the processor.
struct FetchDistances {
  int64_t far, near;
};
constexpr FetchDistances kFetched{12288, 4096}, kLeftToPrefetcher{0, 0};

// Returns whether the processor reads a single stream of addresses faster than several, or than one that is fetched
// twice: on Zen 4, not on Sapphire Rapids (decisions 133 and 136). Results are the same. HARMONICS_FETCH=processor or
// program overrides it; other values are an error.
bool prefers_one_stream();
inline FetchDistances fetch_distances() { return prefers_one_stream() ? kLeftToPrefetcher : kFetched; }

}  // namespace harmonics::cpu
