// C = A B or C += A B, skipping the zeros of A, which are frequent after a rectifier or in an image's background.
// Non-zeros are searched in every run; with few zeros the dense kernel runs instead.
//
// Skipping 0 * b changes no finite result, but it does if b is infinite or NaN (docs/numerics.md).
#pragma once

#include "matmul.hpp"

namespace harmonics::cpu {

constexpr int64_t kSparsePiece = 64;  // elements of a row of A per mask word; with the widest panel, 32 KiB of B's rows
constexpr int64_t kHalfPiece = kSparsePiece / 2;

// Divides the longer side of a weight into two halves, alternating every 32 rows so that zeros spread evenly: each
// thread finds its half in its cache and shares no cache lines. The side is the depth of the product with the weight,
// whose two sums are then added, and the rows of the weight's update.
enum class Halves { none, depth, rows };

// A bit mask of A's non-zero elements, in pieces such that the rows of B in use stay in the first-level cache. Elements
// are read in place; threads share little but these bits. For halves of the depth, one word marks the lower halves of
// two pieces and the next word the upper halves.
struct SparseContext {
  Product product;                                // one batch entry; B's rows are contiguous, and A's rows or columns
  int64_t pieces;                                 // words per row
  bool always;                                    // without fallback to a dense kernel
  uint32_t build_parts, row_parts, column_parts;  // grid, for each half
  uint32_t workspace;                             // buffer
  bool update;                                    // C = old - rate A B, the SGD update
  Halves halves = Halves::none;
  uint32_t sum_parts = 0;   // parts of the phase that adds the halves of the depth
  int64_t sums_offset = 0;  // the second half's sums, in the workspace
};
inline uint32_t multiply_parts(const SparseContext& c) {
  return c.row_parts * c.column_parts * (c.halves == Halves::none ? 1 : 2);
}

// Above this density the dense kernel is faster.
constexpr double kSparse = 0.45;

// A single row of C stays in cache while B is read once; it uses a list of (value, offset of B's row) instead of masks.
[[gnu::always_inline]] static inline bool is_listed(const SparseContext& c) { return c.product.m == 1 && !c.update; }
// Capacity of the list plus one vector.
[[gnu::always_inline]] static inline int64_t list_floats(const Product& p) { return (p.k + 31) / 16 * 16; }
// Workspace: a verdict per build part (1: sparse, its words are valid), then the words or the list. The second verdict
// holds the length of the list.
constexpr int64_t kVerdictBytes = 64;
constexpr uint32_t kMostVerdicts = kVerdictBytes / sizeof(int32_t);
[[gnu::always_inline]] static inline int64_t marks_bytes(const SparseContext& c) {
  return is_listed(c) ? 2 * list_floats(c.product) * static_cast<int64_t>(sizeof(float))
                      : c.pieces * c.product.m * static_cast<int64_t>(sizeof(uint64_t));
}

// Sets the grid of a product whose A is looked at for zeros. False: looking cannot pay.
bool plan_marks(SparseContext& c);
// The verdict of phase 0, sparse_build.
bool is_sparse(const SparseContext& c, void* const* buffers);
// Spreads `own` parts among the `all` parts of a phase, in order. False: this part has nothing to do.
inline bool spread(uint32_t& part, uint32_t all, uint32_t own) {
  const uint64_t at = uint64_t{part} * own;
  part = static_cast<uint32_t>(at / all);
  return at % all < own;
}

}  // namespace harmonics::cpu
