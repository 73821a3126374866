// Vector code of integer_products.cpp for few rows of x. It is a source of its own because it takes long to compile.
#ifdef HM_ISA

#include "integer_few.hpp"

#include <harmonics/abi.h>

#include "integer_dots.hpp"
#include "integer_types.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Accumulators of kRows rows of x, in registers.
template <typename Dot, int kRun, bool kLeast, int kRows>
struct FewSums {
  static constexpr bool kBytes = Dot::kLanes;  // indices may have all eight bits
  const IntegerChunk* x;
  vf total[kRows];
  HM_INLINE void add(int run, const vi* indices, vf steps, vf leasts) {
    vi w[kRun / 4], size[kRun / 4];
#pragma GCC unroll 8
    for (int k = 0; k < kRun / 4; ++k) {
      w[k] = Dot::kSigned ? indices[k] ^ bytes_of(128) : indices[k];
      size[k] = Dot::prepared(w[k]);
    }
    // Accumulators per result: two hide the latency of the addition if there are few rows.
    constexpr int kWays = kRun > 16 && kRows < 4 && Dot::kSums == 1 ? 2 : 1;
    vi sum[kRows][kWays];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int way = 0; way < kWays; ++way) sum[r][way] = Dot::kSigned || way > 0 ? vi{} : splat_int(x[r].starts[run]);
#pragma GCC unroll 8
    for (int k = 0; k < kRun / 4; k += Dot::kSums)
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        vi& to = sum[r][k % kWays];
        vi pairs{};
#pragma GCC unroll 8
        for (int i = k; i < k + Dot::kSums; ++i) {
          const int8_t* steps = x[r].steps + run * kRun + 4 * i;
          if constexpr (Dot::kLanes)
            to = Dot::add(to, w[i], size[i], steps);
          else
            pairs = Dot::add(pairs, w[i], size[i], steps);
        }
        if constexpr (!Dot::kLanes) to += lanes_of_pairs(pairs);
      }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      total[r] =
          fma(floats(kWays > 1 ? sum[r][0] + sum[r][kWays - 1] : sum[r][0]), steps * splat(x[r].scales[run]), total[r]);
      if constexpr (kLeast) total[r] = fma(leasts, splat(x[r].sums[run]), total[r]);
    }
  }
};

// Prefetches a chunk of these rows, or of the next ones. A row is too short for the hardware prefetcher.
template <typename W>
HM_INLINE void fetch(const FewIntegerRows& work, int64_t chunk) {
  const char* at = work.rows[0];
  if (chunk >= work.chunks) {
    if (!work.next) return;
    at = work.next;
    chunk -= work.chunks;
  }
  at += chunk * W::kChunkBytes;
  for (int i = 0; i < kWidth; ++i, at += work.row_bytes)
    for (int64_t byte = 0; byte < W::kChunkBytes; byte += 64) _mm_prefetch(at + byte, _MM_HINT_T0);
}

template <typename Dot, typename W, int kRows>
void multiply_few(const FewIntegerRows& work, float* to) {
  FewSums<Dot, W::kRun, W::kLeast, kRows> sums{work.x, {}};
  const char* rows[kWidth];
  for (int i = 0; i < kWidth; ++i) rows[i] = work.rows[i];
  LastChunk last;
  for (int64_t chunk = 0; chunk < work.chunks; ++chunk) {
    fetch<W>(work, chunk + 2);
    if (chunk + 1 == work.chunks) last.complete<W>(rows, work.last_blocks);
    W::chunk(static_cast<const char* const*>(rows), sums);
    for (int i = 0; i < kWidth; ++i) rows[i] += W::kChunkBytes;
    sums.x += work.x_rows;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) store(to + r * kWidth, sums.total[r]);
}

template <typename Dot, typename W, int kRows>
void multiply_few_packed(const FewIntegerRows& work, float* to) {
  FewSums<Dot, W::kRun, W::kLeast, kRows> sums{work.x, {}};
  const char* at = work.packed;
  for (int64_t chunk = 0; chunk < work.chunks; ++chunk, at += W::kPackedBytes) {
    W::chunk(StreamedRows{at, work.fetches}, sums);
    sums.x += work.x_rows;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) store(to + r * kWidth, sums.total[r]);
}

template <typename Dot, typename W, int kRows>
MultiplyFew few_or_packed(bool packed) {
  return packed ? multiply_few_packed<Dot, W, kRows> : multiply_few<Dot, W, kRows>;
}

template <typename Dot, typename W>
MultiplyFew few_of(int64_t rows, bool packed) {
  switch (rows) {
    case 1:
      return few_or_packed<Dot, W, 1>(packed);
    case 2:
      return few_or_packed<Dot, W, 2>(packed);
    case 4:
      return few_or_packed<Dot, W, 4>(packed);
#if defined(__AVX512F__)
    case 8:
      return few_or_packed<Dot, W, 8>(packed);
#endif
    default:
      return nullptr;
  }
}

}  // namespace

MultiplyFew few_integer_rows_of(uint32_t dtype, bool vnni, int64_t rows, bool packed) {
  MultiplyFew found = nullptr;
#if defined(__AVX2__)
  with_integer_type(dtype, [&](auto type) {
    using W = decltype(type);
    if (vnni) found = few_of<FourAtOnce, W>(rows, packed);
#if !defined(__AVX512F__)  // few processors have AVX-512 without VNNI
    if (!vnni) found = few_of<PairsOf<W>, W>(rows, packed);
#endif
  });
#else
  (void)dtype, (void)vnni, (void)rows, (void)packed;
#endif
  return found;
}

}  // namespace harmonics::cpu::HM_ISA

#endif
