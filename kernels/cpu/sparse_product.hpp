// C = A B or C += A B, skipping the zeros of A, which are frequent after a rectifier or in the background of images.
// Every run searches for non-zeros; with few zeros the dense kernel runs instead.
//
// Skipping 0 * b changes the result only if b is infinite or NaN (docs/numerics.md).
#pragma once

#include "isa.hpp"
#include "matmul.hpp"

namespace harmonics::cpu {

constexpr int64_t kSparsePiece = 64;  // elements of a row of A per mask word; with the widest panel, 32 KiB of B's rows
constexpr int64_t kHalfPiece = kSparsePiece / 2;

// Divides the longer side of a weight into two halves, alternating every 32 rows to balance the zeros: each thread
// finds its half in its cache and shares no cache lines. In the product this side is the depth, and the sums of the two
// halves are added; in the weight's update it is the rows.
enum class Halves { none, depth, rows };

// A bit mask of A's non-zeros, in pieces whose rows of B fit the L1 cache. Elements are read in place; threads share
// only the mask. For halves of the depth, one word masks the lower halves of two pieces, and the next word their upper
// halves.
struct SparseContext {
  Product product;                                // one batch entry; B is row-major, A row-major or column-major
  int64_t pieces;                                 // words per row
  bool always;                                    // no fallback to a dense kernel
  uint32_t build_parts, row_parts, column_parts;  // row_parts x column_parts: grid of each half
  uint32_t workspace;                             // buffer
  bool update;                                    // C = old - rate A B, the SGD update
  Halves halves = Halves::none;
  uint32_t sum_parts = 0;    // parts of the phase that adds the halves, or slices, of the depth
  int64_t sums_offset = 0;   // the sums of the second half, or of all slices but the first, in the workspace
  double most_nonzeros = 1;  // of A, as a share; above it the dense kernel is faster
  uint32_t slices = 1;       // with a list: slices of the depth, which are the rows that a thread updates
};
inline uint32_t multiply_parts(const SparseContext& c) {
  return c.row_parts * c.column_parts * (c.halves == Halves::none ? c.slices : 2);
}

// Above this density, of a build part, the dense kernel is faster.
constexpr double kSparse = 0.45;

// A single row of C stays in cache while B is read once; it has a list of (value, offset of B's row) instead of a mask.
[[gnu::always_inline]] static inline bool is_listed(const SparseContext& c) { return c.product.m == 1 && !c.update; }
// Capacity of the list: the depth plus one vector.
[[gnu::always_inline]] static inline int64_t list_floats(const Product& p) { return (p.k + 31) / 16 * 16; }
// Workspace: a verdict per build part (0: dense; else its mask words are valid: 1 + number of non-zeros), then the mask
// words or the list. With a list, the end of each slice's elements in it follows the first verdict.
constexpr int64_t kVerdictBytes = 64;
constexpr uint32_t kMostVerdicts = kVerdictBytes / sizeof(int32_t);
constexpr uint32_t kMostSlices = 4;
[[gnu::always_inline]] static inline int64_t marks_bytes(const SparseContext& c) {
  return is_listed(c) ? 2 * list_floats(c.product) * static_cast<int64_t>(sizeof(float))
                      : c.pieces * c.product.m * static_cast<int64_t>(sizeof(uint64_t));
}

// Sets the grid of a sparse product. Returns false if searching for zeros cannot pay.
bool plan_marks(SparseContext& c);
// Returns the verdict of sparse_build.
bool is_sparse(const SparseContext& c, void* const* buffers);
// Distributes `own` parts over the `all` parts of a phase, in order. False: this part has no work.
inline bool spread(uint32_t& part, uint32_t all, uint32_t own) {
  const uint64_t at = uint64_t{part} * own;
  part = static_cast<uint32_t>(at / all);
  return at % all < own;
}

}  // namespace harmonics::cpu

HM_VECTOR_CODE(sparse_build)  // phase 0 of a sparse product: searches for the non-zeros

#ifdef HM_ISA
namespace harmonics::cpu::HM_ISA {
// Computes rows [row, end) of a sparse product, all columns, into `to`.
void sparse_rows(const SparseContext& c, void* const* buffers, int64_t row, int64_t end, float* to);
}  // namespace harmonics::cpu::HM_ISA
#endif
