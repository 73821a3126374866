// Visible keys, mask and bias of the scores of a query.
#pragma once

#include <cstring>

#include "../cached_attention.hpp"
#include "softmax_power.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

HM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
HM_INLINE int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

// The visible keys [begin, end) of a query.
struct Seen {
  int64_t begin, end;
  HM_INLINE bool none() const { return end <= begin; }
  HM_INLINE Seen within(int64_t from, int64_t to) const { return {most_of(begin, from), least(end, to)}; }
};
HM_INLINE int64_t length_of(const SequenceAttention& c, void* const* buffers, int64_t b) {
  if (c.lengths == kNoBuffer) return c.keys;
  const int64_t given = static_cast<const int32_t*>(buffers[c.lengths])[b];
  return given < 0 ? 0 : least(given, c.keys);
}
HM_INLINE Seen seen_by(const SequenceAttention& c, int64_t length, int64_t query) {
  const int64_t position = length - c.queries + query;
  return {c.window > 0 ? most_of(0, position - c.window + 1) : 0, c.causal ? least(length, position + 1) : length};
}

// Returns a lane mask from n bools.
HM_INLINE vi mask_of(const uint8_t* p, int64_t n) {
  uint8_t all[16] = {};
  if (n == kWidth)
    std::memcpy(all, p, kWidth);
  else
    for (int64_t i = 0; i < n; ++i) all[i] = p[i];
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(all));
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepu8_epi32(bytes) != 0;
#elif defined(__AVX2__)
  return (vi)_mm256_cvtepu8_epi32(bytes) != 0;
#else
  return (vi)_mm_cvtepu8_epi32(bytes) != 0;
#endif
}

// Mask and bias of a query, from one key; null: not given.
struct ScoreTerms {
  const uint8_t* mask;
  const float* bias;

  HM_INLINE static ScoreTerms of(const SequenceAttention& c, void* const* buffers, int64_t batch, int64_t head,
                                 int64_t query, int64_t key) {
    const auto at = [&](const ScoreRows& rows) __attribute__((always_inline)) {
      return batch * rows.batch + head * rows.head + query * rows.row + key;
    };
    return {c.mask.given() ? static_cast<const uint8_t*>(buffers[c.mask.buffer]) + at(c.mask) : nullptr,
            c.bias.given() ? static_cast<const float*>(buffers[c.bias.buffer]) + at(c.bias) : nullptr};
  }
  HM_INLINE bool any() const { return mask || bias; }
  // Applies bias and mask to x, the scores of keys [v, v + n).
  HM_INLINE vf apply(vf x, int64_t v, int64_t n) const {
    if (bias) x += load_some(bias + v, n);
    return mask ? choose(mask_of(mask + v, n), x, splat(-kInfinity)) : x;
  }
};

// Returns the mask of the lanes of [v, v + kWidth) within [from, to).
HM_INLINE vi lanes_within(int64_t v, int64_t from, int64_t to) {
  const vi at = lanes() + static_cast<int32_t>(v);
  return (at >= splat_int(static_cast<int32_t>(from))) & (at < splat_int(static_cast<int32_t>(to)));
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
