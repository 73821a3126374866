// Optimizer steps of an affine map's weight for a batch: a tile of the gradient is used while it is in the first-level
// cache, and never stored as a whole.
#include "kernels.hpp"
#include "packed.hpp"
#include "update_rules.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

constexpr int64_t kBlockColumns = 256;

// Prefetch of the weights and moments of a tile while its gradient is computed, one line of each per step of the depth:
// down the rows, then one line further. A burst would hold up the loads of the product.
template <int kArrays>
struct TileAhead {
  const float* at[kArrays];
  int64_t step, rows, columns, row = 0;
  template <PanelOrder>
  HM_INLINE void fetch() {
    if (columns <= 0) return;
    for (const float*& p : at) {
      __builtin_prefetch(p, 1, 2);
      p += step;
    }
    if (++row < rows) return;
    row = 0, columns -= 16;
    for (const float*& p : at) p += 16 - rows * step;
  }
};

// w, a, b, moments..., lr, [step] -> w, moments...
template <typename Rule, typename Moment = float>
void update_tiles(const ProductUpdateContext& c, void* const* buffers, uint32_t part) {
  constexpr int kMoments = Rule::kMoments, kLr = 3 + kMoments;
  // bf16 moments are half as long, and are left to the processor's own prefetch
  constexpr int kFetched = sizeof(Moment) == sizeof(float) ? kMoments + 1 : 1;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1), kPacked = kOut + 1 + kMoments;
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const RandomBits random(step_number(c.rule, buffers[kLr + 1]));
  const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, random);
  const float *a = static_cast<const float*>(buffers[1]), *b = static_cast<const float*>(buffers[kPacked]);
  const int64_t n = c.columns;
  alignas(64) float panel[kRows * kMostUpdateDepth], block[kRows * kBlockColumns];
  const Range panels = share((c.rows + kRows - 1) / kRows, c.parts, part);
  for (int64_t i = panels.begin * kRows; i < panels.end * kRows && i < c.rows; i += kRows) {
    const int64_t rows = c.rows - i < kRows ? c.rows - i : kRows;
    pack_rows(a + i, c.rows, rows, c.depth, panel);
    for (int64_t j = 0; j < n; j += kBlockColumns) {
      const int64_t columns = n - j < kBlockColumns ? n - j : kBlockColumns, at = i * n + j;
      for (int64_t jj = 0; jj < columns; jj += kColumns) {
        const int64_t some = columns - jj < kColumns ? columns - jj : kColumns;
        TileAhead<kFetched> ahead{{}, n, rows, some};
        ahead.at[0] = all.w + at + jj;
        if constexpr (kFetched > 1)
          for (int k = 0; k < kMoments; ++k) ahead.at[k + 1] = all.old[k] + at + jj;
        tile_for<PanelOrder::packed, TileAhead<kFetched>>(rows, some)(
            panel, 0, b + (j + jj) * c.depth, 0, c.depth, block + jj, kBlockColumns, some, Ending{nullptr, 1}, ahead);
      }
      const FlushDenormals flush;
      for (int64_t r = 0; r < rows; ++r) {
        const Elements<Rule, Moment> row = from_place(all, at + r * n, block + r * kBlockColumns);
        for (int64_t x = 0; x < columns; x += kWidth) row.step(rule, x, lanes_at(x, columns));
      }
    }
  }
}

}  // namespace

void update_product(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ProductUpdateContext*>(context);
  if (phase == 0) {
    const uint32_t moments = c.kind == UpdateKind::adam ? 2 : c.kind == UpdateKind::lion || c.rule.has_velocity ? 1 : 0;
    float* packed = static_cast<float*>(buffers[5 + 2 * moments + c.rule.counts_steps]);
    const Range panels = share((c.columns + kColumns - 1) / kColumns, c.pack_parts, part);
    const int64_t j = panels.begin * kColumns,
                  end = panels.end * kColumns < c.columns ? panels.end * kColumns : c.columns;
    if (j < end)
      pack_columns(static_cast<const float*>(buffers[2]) + j, c.columns, end - j, c.depth, packed + j * c.depth,
                   c.depth * kColumns);
    return;
  }
  switch (c.kind) {
    case UpdateKind::sgd:
      return c.rule.has_velocity ? update_tiles<SgdRule<true>>(c, buffers, part)
                                 : update_tiles<SgdRule<false>>(c, buffers, part);
    case UpdateKind::adam:
      return c.rule.moments == MomentType::bf16 ? update_tiles<AdamRule<true>, uint16_t>(c, buffers, part)
                                                : update_tiles<AdamRule<>>(c, buffers, part);
    case UpdateKind::lion:
      return update_tiles<LionRule>(c, buffers, part);
  }
}

}  // namespace harmonics::cpu::HM_ISA
