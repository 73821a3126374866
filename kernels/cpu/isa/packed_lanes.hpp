// Chunks of packed weights in blocks of whole numbers, as vectors of lanes.
#pragma once

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// So far ahead of what is multiplied that memory answers in time.
constexpr int64_t kAheadBytes = 4096;

// A chunk of kWidth rows of a packed weight: vectors of lanes, each of which has four neighbouring bytes of a row.
// Streamed: with each line that is read, one is fetched; all lines of a chunk at once would wait for each other.
template <bool kStreamed>
struct PackedLanes {
  const char* at;
  HM_INLINE void fetch(int64_t byte) const {
    if constexpr (kStreamed)
      if (byte % 64 == 0) _mm_prefetch(at + byte + kAheadBytes, _MM_HINT_T0);
  }
  HM_INLINE vi lane(int64_t i) const {
    fetch(i * 4 * kWidth);
    return load_int(reinterpret_cast<const int32_t*>(at + i * 4 * kWidth));
  }
};
using PackedRows = PackedLanes<false>;
using StreamedRows = PackedLanes<true>;

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
