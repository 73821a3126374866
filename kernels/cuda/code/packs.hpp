// Memory access in packs of four elements, and rows that a warp or a block keeps in registers.
#pragma once

#include "language.hpp"

namespace harmonics::cuda {

template <typename T, uint32_t kCount = 4>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T x[kCount];
};

// Stores a pack by one instruction per 16 bytes; the compiler would use one per element.
#ifdef HM_EMULATED
template <typename P>
void store_whole(void* to, const P& v) {
  *static_cast<P*>(to) = v;
}
#else
template <typename P>
__device__ inline void store_whole(void* to, const P& v) {
  uint32_t w[sizeof(P) / 4];
  memcpy(w, &v, sizeof w);
  const size_t at = __cvta_generic_to_global(to);
  if constexpr (sizeof(P) == 4)
    asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");
  else if constexpr (sizeof(P) == 8)
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(w[0]), "r"(w[1]) : "memory");
  else
    for (uint32_t i = 0; i < sizeof(P) / 4; i += 4)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at + 4 * i), "r"(w[i]), "r"(w[i + 1]),
                   "r"(w[i + 2]), "r"(w[i + 3])
                   : "memory");
}
#endif

// Positions of a thread's four elements in an array of `end` elements: contiguous, or with stride `apart` if rows are
// not aligned to 16 bytes. Access is coalesced in both cases.
struct Place {
  uint32_t first, apart, end;
  __device__ uint32_t at(uint32_t c) const { return first + c * apart; }
  __device__ bool holds(uint32_t c) const { return at(c) < end; }
};

// Reads four elements; elements beyond the end are `pad`.
__device__ inline Pack<float> read(const float* from, const Place& place, float pad) {
  if (place.apart == 1 && place.first < place.end) return *reinterpret_cast<const Pack<float>*>(from + place.first);
  Pack<float> v;
  HM_UNROLL
  for (uint32_t c = 0; c < 4; ++c) v.x[c] = place.apart != 1 && place.holds(c) ? from[place.at(c)] : pad;
  return v;
}
__device__ inline void write(float* to, const Place& place, const Pack<float>& v) {
  if (place.apart == 1) {
    if (place.first < place.end) *reinterpret_cast<Pack<float>*>(to + place.first) = v;
    return;
  }
  HM_UNROLL
  for (uint32_t c = 0; c < 4; ++c)
    if (place.holds(c)) to[place.at(c)] = v.x[c];
}

constexpr uint32_t kWideLanes = 1024;  // threads per row for the longest rows

// A row of n elements, shared by kLanes threads. Each thread keeps up to kPacks packs in registers. The rest of a
// longer row is read again; this is supported only with kWideLanes threads.
template <uint32_t kLanes, uint32_t kPacks>
struct Row {
  static constexpr uint32_t kBlock = kLanes == kWarp ? kThreads : kLanes;  // threads per block
  uint32_t lane, n;

  __device__ explicit Row(uint32_t columns) : lane(threadIdx.x % kLanes), n(columns) {}
  // Returns the number of this thread's row in a grid with kLanes threads per row.
  __device__ static uint32_t number() { return blockIdx.x * (kBlock / kLanes) + threadIdx.x / kLanes; }
  __device__ Place place(uint32_t pack) const {
    return n % 4 == 0 ? Place{(pack * kLanes + lane) * 4, 1, n} : Place{pack * 4 * kLanes + lane, kLanes, n};
  }
  // Calls f(pack, place) for the packs that stay in registers.
  template <typename F>
  __device__ void kept(F f) const {
    HM_UNROLL
    for (uint32_t j = 0; j < kPacks; ++j) f(j, place(j));
  }
  // Calls f(place) for the rest of the row.
  template <typename F>
  __device__ void rest(F f) const {
    if constexpr (kLanes == kWideLanes)
      for (uint32_t j = kPacks; j * 4 * kLanes < n; ++j) f(place(j));
  }
};

}  // namespace harmonics::cuda
