// Shared by the LSTM and GRU scans: products of few rows and a packed weight, and the division of rows into blocks.
#pragma once

#include "../recurrent.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Accumulators of a register block.
#if defined(__AVX512F__)
constexpr int kTile = 24;
#else
constexpr int kTile = 12;
#endif

template <int kCount>
struct Count {
  static constexpr int value = kCount;
};
// Calls f(Count<n>), 1 <= n <= kMost.
template <int kMost, typename F>
HM_INLINE void with_count(int64_t n, F f) {
  if constexpr (kMost > 1)
    if (n < kMost) return with_count<kMost - 1>(n, f);
  f(Count<kMost>{});
}
// Calls f(Count<n>, first) for blocks of at most kMost rows, as even as possible.
template <int kMost, typename F>
HM_INLINE void in_blocks(int64_t rows, F f) {
  const uint32_t blocks = static_cast<uint32_t>((rows + kMost - 1) / kMost);
  for (uint32_t i = 0; i < blocks; ++i) {
    const Range block = share(rows, blocks, i);
    with_count<kMost>(
        block.end - block.begin, [&](auto n) __attribute__((always_inline)) { f(n, block.begin); });
  }
}

// sum[i][v] += row i of a times vector v of the panel's columns.
template <int kRows, int kVectors>
HM_INLINE void products(const float* a, int64_t a_row, const float* panel, int64_t depth, vf (&sum)[kRows][kVectors]) {
  for (int64_t k = 0; k < depth; ++k, panel += kVectors * kWidth) {
    vf row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = load(panel + v * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const vf x = splat(a[i * a_row + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
}

// Samples and memory of one part of a scan.
struct ScanPart {
  const RecurrentContext& c;
  Range samples;
  float* memory;

  ScanPart(const RecurrentContext& context, float* workspace, uint32_t part)
      : c(context),
        samples(share(context.batch, context.parts, part)),
        memory(workspace + context.packed + part * context.part_workspace) {}
  int64_t rows() const { return samples.end - samples.begin; }
  int64_t position(int64_t step) const { return c.reverse ? c.positions - 1 - step : step; }
  // Offset of row `row` at position t, in units of one position.
  int64_t place(int64_t row, int64_t t) const { return (samples.begin + row) * c.positions + t; }
};

// Copies [samples, width] of the part to rows of leading dimension `stride`, and back.
HM_INLINE void read_state(const ScanPart& p, const float* from, float* to) {
  const int64_t n = p.c.width;
  for (int64_t r = 0; r < p.rows(); ++r)
    for (int64_t u = 0; u < n; u += kWidth)
      store(to + r * p.c.stride + u, load_some(from + (p.samples.begin + r) * n + u, lanes_at(u, n)));
}
HM_INLINE void write_state(const ScanPart& p, const float* from, float* to) {
  const int64_t n = p.c.width;
  for (int64_t r = 0; r < p.rows(); ++r)
    for (int64_t u = 0; u < n; u += kWidth)
      store_some(to + (p.samples.begin + r) * n + u, load(from + r * p.c.stride + u), lanes_at(u, n));
}
HM_INLINE void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}

// Packs forward panels: for each vector of units and each k, a vector of weights per gate; padded with zeros.
template <int kGates>
void pack_units(const RecurrentContext& c, const float* weight, float* packed, uint32_t part) {
  const int64_t n = c.width;
  const Range panels = share((n + kWidth - 1) / kWidth, c.pack_parts, part);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    for (int64_t row = 0; row < kGates * kWidth; ++row) {
      const int64_t unit = panel * kWidth + row % kWidth;
      const float* from = weight + (row / kWidth * n + unit) * n;
      float* to = packed + panel * n * kGates * kWidth + row;
      for (int64_t k = 0; k < n; ++k) to[k * kGates * kWidth] = unit < n ? from[k] : 0.0f;
    }
}

// Packs backward panels of panel_vectors vectors of columns.
HM_INLINE void pack_columns(const RecurrentContext& c, int64_t depth, const float* weight, float* packed,
                            uint32_t part) {
  const int64_t n = c.width, columns = c.panel_vectors * kWidth;
  const Range panels = share((n + columns - 1) / columns, c.pack_parts, part);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t column = panel * columns + j;
        packed[(panel * depth + k) * columns + j] = column < n ? weight[k * n + column] : 0.0f;
      }
}

template <int kVectors>
void product_of_gates(const ScanPart& p, const float* packed, int64_t depth, const float* gates, float* dh, bool add) {
  const RecurrentContext& c = p.c;
  for (int64_t u = 0; u < c.width; u += kVectors * kWidth)
    in_blocks<12 / kVectors>(
        p.rows(), [&](auto n, int64_t row) __attribute__((always_inline)) {
          constexpr int kRows = decltype(n)::value;
          vf sum[kRows][kVectors] = {};
          products(gates + row * c.gate_stride, c.gate_stride, packed + u * depth, depth, sum);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
              float* to = dh + (row + i) * c.stride + u + v * kWidth;
              store(to, add ? load(to) + sum[i][v] : sum[i][v]);
            }
        });
}
// dh = or += gradients of the gates times the weight.
HM_INLINE void carry_back(const ScanPart& p, const float* packed, int64_t depth, const float* gates, float* dh,
                          bool add) {
  if (p.c.panel_vectors == 4)
    product_of_gates<4>(p, packed, depth, gates, dh, add);
  else
    product_of_gates<2>(p, packed, depth, gates, dh, add);
}

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
