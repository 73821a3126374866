// Products by the dot-product instructions of AVX512-BF16. Called only on processors that support it.
#include "pack.hpp"
#include "product.hpp"

namespace harmonics::cpu::bf16 {
namespace {

struct Dots {
  struct Scope {};

  // Eight rows at a time, whose accumulators fill half of the registers.
  template <int kRows, int kColumns>
  static void run(const Square& s) {
    constexpr int kSome = 8;
    for (int64_t r = 0; r < kRows * kStrip; r += kSome) {
      const uint16_t* const a = s.a + r / kStrip * s.a_strip + r % kStrip * kTileDepth;
      float* const c = s.c + r * s.c_row;
      const float* const next = r + kSome < kRows * kStrip ? c + kSome * s.c_row : s.next;
#pragma GCC unroll 8
      for (int i = 0; i < kSome; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kColumns; ++j) __builtin_prefetch(next + i * s.c_row + j * kStrip, 1);
      __m512 sum[kSome][kColumns];
#pragma GCC unroll 8
      for (int i = 0; i < kSome; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kColumns; ++j)
          sum[i][j] = s.add ? _mm512_loadu_ps(c + i * s.c_row + j * kStrip) : _mm512_setzero_ps();
      for (int64_t t = 0; t < s.tiles; ++t) {
        s.ahead->fetch_share();
        for (int64_t k = 0; k < kTileDepth; k += 2) {
          __m512bh b[kColumns];
#pragma GCC unroll 2
          for (int j = 0; j < kColumns; ++j)
            b[j] = (__m512bh)_mm512_loadu_si512(s.b + j * s.b_strip + t * kTileNumbers + k * kStrip);
#pragma GCC unroll 8
          for (int i = 0; i < kSome; ++i) {
            int pair;
            __builtin_memcpy(&pair, a + t * kTileNumbers + i * kTileDepth + k, sizeof pair);
            const auto x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
            for (int j = 0; j < kColumns; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, b[j]);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kSome; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kColumns; ++j) _mm512_storeu_ps(c + i * s.c_row + j * kStrip, sum[i][j]);
    }
  }
};

}  // namespace

constexpr RoundedRoutines dots = [] {
  RoundedRoutines r = routines("bf16 dot products", "sparse or bf16 dot products", pack_operand, multiply_block<Dots>);
  r.rate = 200;
  r.most_nonzeros = 0.25;
  r.depth = 256;  // 32 columns of a block fit half of the L1 cache
  r.own_rows = r.own_columns = 128;
  return r;
}();

}  // namespace harmonics::cpu::bf16
