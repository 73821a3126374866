// Chunks of packed block-quantised integer weights, as vectors of lanes.
#pragma once

#include "integer_products.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// A chunk of kWidth rows of a packed weight: vectors of lanes, each with four adjacent bytes of a row. kStreamed:
// prefetches two lines for each line read, since prefetching a whole chunk at once would fill the line buffers.
template <bool kStreamed>
struct PackedLanes {
  const char* at;
  FetchDistances fetches{};
  HM_INLINE void fetch(int64_t byte) const {
    if constexpr (kStreamed) {
      if (byte % 64 != 0) return;
      _mm_prefetch(at + byte + fetches.far, _MM_HINT_T1);
      _mm_prefetch(at + byte + fetches.near, _MM_HINT_T0);
    }
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
