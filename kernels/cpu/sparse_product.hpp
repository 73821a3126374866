// C = A B, or C += A B, that leaves out the zeros of A, which a rectifier or an image's background makes many of: they are found
// anew in each run, and a product with few of them is made the usual way.
//
// Leaving out 0 * b changes no finite result; where b is infinite or NaN it does (docs/numerics.md).
#pragma once

#include "matmul.hpp"

namespace harmonics::cpu {

constexpr int64_t kSparsePiece = 64;  // elements of a row of A that a word marks: with the widest panel, 32 KiB of B's rows
constexpr int64_t kHalfPiece = kSparsePiece / 2;

// The longer side of a weight in two halves, 32 rows of each in turn so that zeros spread evenly: whoever has a half finds its rows in its own
// cache, and nobody else's lines begin between them. It is the depth of the product with the weight, whose sums of both halves are then added, and
// the rows of its update.
enum class Halves { none, depth, rows };

// Which elements of A are not zero, a bit each, cut into pieces so that the rows of B used at a time stay in the first-level cache. Threads
// share little else than these bits, and the elements are read where they are. For halves of the depth one word marks the lower halves of two
// pieces and the next word the upper ones.
struct SparseContext {
  Product product;  // one batch entry; B's rows are contiguous, A's rows or columns
  int64_t pieces;   // words of a row
  bool always;  // whatever the number of zeros
  uint32_t build_parts, row_parts, column_parts;  // the grid is there for each half
  uint32_t workspace;  // buffer
  bool update;         // C = old - rate A B
  uint32_t old, rate;  // buffers
  Halves halves = Halves::none;
  uint32_t sum_parts = 0;   // of the phase that adds halves of the depth
  int64_t sums_offset = 0;  // of the second half's sums, in the workspace
};
inline uint32_t multiply_parts(const SparseContext& c) { return c.row_parts * c.column_parts * (c.halves == Halves::none ? 1 : 2); }

// More non-zeros than this share are multiplied faster by whom does not look.
constexpr double kSparse = 0.45;

// A single row of C, which stays in cache while B goes by once, is made from a list of (value, where B's row begins).
[[gnu::always_inline]] static inline bool is_listed(const SparseContext& c) { return c.product.m == 1 && !c.update; }
// Room for a list and a vector behind it.
[[gnu::always_inline]] static inline int64_t list_floats(const Product& p) { return (p.k + 31) / 16 * 16; }
// The workspace: a verdict per build part (1: its words are there), then the words or the list. A list's length is the second verdict.
constexpr int64_t kVerdictBytes = 64;
[[gnu::always_inline]] static inline int64_t marks_bytes(const SparseContext& c) {
  return is_listed(c) ? 2 * list_floats(c.product) * static_cast<int64_t>(sizeof(float)) : c.pieces * c.product.m * static_cast<int64_t>(sizeof(uint64_t));
}

// w = w - rate a b^T for one sample, and with it the slope of what was multiplied with the old w.
struct OuterContext {
  enum Slope { none, all, active };
  int64_t rows, columns;  // of w
  Slope slope;
  uint32_t parts;
};

}  // namespace harmonics::cpu
