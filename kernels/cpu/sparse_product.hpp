// C = A B, or C += A B, that leaves out the zeros of A, which a rectifier or an image's background makes many of: they are found
// anew in each run, and a product with few of them is made the usual way.
//
// Leaving out 0 * b changes no finite result; where b is infinite or NaN it does (docs/numerics.md).
#pragma once

#include "matmul.hpp"

namespace harmonics::cpu {

constexpr int64_t kSparsePiece = 96;  // rows of B; with the widest panel 24 KiB

// Rows of A as lists of (value, where B's row begins), cut into pieces of `piece` columns so that the rows of B used at
// a time stay in the first-level cache.
struct SparseContext {
  Product product;  // one batch entry; B's rows are contiguous, A's rows or columns
  int64_t piece, pieces;
  bool always;  // whatever the number of zeros
  bool packs_bytes;  // the processor brings the bytes of a mask together (AVX512-VBMI2)
  uint32_t build_parts, row_parts, column_parts;
  uint32_t workspace;  // buffer
  int64_t list_bytes;  // of one build part
  bool update;         // C = old - rate A B
  uint32_t old, rate;  // buffers
};

// More non-zeros than this share are multiplied faster by whom does not look.
constexpr double kSparse = 0.45;

struct SparseSegment {
  int32_t begin, count;
};
// The workspace: a verdict per build part (1: its lists are there), the segments [pieces][m], the lists of each part.
constexpr int64_t kVerdictBytes = 64;
[[gnu::always_inline]] static inline int64_t segment_bytes(const SparseContext& c) {
  return (c.pieces * c.product.m * static_cast<int64_t>(sizeof(SparseSegment)) + 63) / 64 * 64;
}

// w = w - rate a b^T for one sample, and with it the slope of what was multiplied with the old w.
struct OuterContext {
  enum Slope { none, all, active };
  int64_t rows, columns;  // of w
  Slope slope;
  uint32_t parts;
};

}  // namespace harmonics::cpu
