// Products of long sums and few results, as slopes of weights are: every part takes a slice of the depth, reads its rows of both
// operands once, and sums of its own are joined in the order of the slices.
#include "kernels.hpp"
#include "packed.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

void sum_slice(const DeepContext& c, void* const* buffers, uint32_t part) {
  const Product& p = c.product;
  const Range own = share(p.k / kDeepGranule, c.slices, part);
  const int64_t k0 = own.begin * kDeepGranule, k1 = part + 1 < c.slices ? own.end * kDeepGranule : p.k;
  float* workspace = static_cast<float*>(buffers[p.c + 1]) + part * c.slice_floats;
  float *packed_a = workspace + p.m * p.n, *packed_b = packed_a + c.a_floats;
  const float *a = static_cast<const float*>(buffers[p.a]), *b = static_cast<const float*>(buffers[p.b]);
  for (int64_t k = k0; k < k1; k += kPackedDepth) {
    const int64_t depth = k1 - k < kPackedDepth ? k1 - k : kPackedDepth;
    for (int64_t j = 0; j < p.n; j += kPackedColumns) {
      const int64_t columns = p.n - j < kPackedColumns ? p.n - j : kPackedColumns;
      pack_b(p, b + k * p.b_row + j * p.b_column, columns, depth, packed_b, depth * kColumns);
      for (int64_t i = 0; i < p.m; i += kPackedRows) {
        const int64_t rows = p.m - i < kPackedRows ? p.m - i : kPackedRows;
        for (int64_t ii = 0; ii < rows; ii += kRows)
          pack_rows(a + i + ii + k * p.a_column, p.a_column, rows - ii < kRows ? rows - ii : kRows, depth, packed_a + ii * depth);
        multiply<true>(packed_a, 1, depth, rows, packed_b, depth * kColumns, columns, depth, workspace + i * p.n + j, p.n, k > k0);
      }
    }
  }
}

void join_slices(const DeepContext& c, void* const* buffers, uint32_t part) {
  const Product& p = c.product;
  const Range vectors = share((p.m * p.n + kWidth - 1) / kWidth, c.join_parts, part);
  const float* sums = static_cast<const float*>(buffers[p.c + 1]);
  float* to = static_cast<float*>(buffers[p.c]);
  for (int64_t i = vectors.begin * kWidth; i < vectors.end * kWidth && i < p.m * p.n; i += kWidth) {
    const int64_t n = lanes_at(i, p.m * p.n);
    vf sum = load_some(sums + i, n);
    for (uint32_t s = 1; s < c.slices; ++s) sum += load_some(sums + s * c.slice_floats + i, n);
    store_some(to + i, p.accumulate ? load_some(to + i, n) + sum : sum, n);
  }
}

}  // namespace

void deep_matmul(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const DeepContext*>(context);
  phase == 0 ? sum_slice(c, buffers, part) : join_slices(c, buffers, part);
}

}  // namespace harmonics::cpu::HM_ISA
