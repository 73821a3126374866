// Batched matrix products and their epilogues.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// An operand's strides in elements: for a, of rows and terms; for b, of terms and columns; `run`: between runs of
// terms.
struct Factor {
  uint32_t buffer, dtype;
  int64_t row, column, run = 0;
};

struct Ending {
  enum Kind : uint32_t { none, bias_of_columns, bias_of_rows, sum, kept_sum, step, where_active };
  Kind kind = none;
  uint32_t activation = 0;  // see activation_number()
  // a further buffer and its type: bias; addend; w of an update; operand that must be positive
  uint32_t extra = 0, dtype = 0;
  uint32_t number = 0;  // a buffer with one element: kept_sum's flag, step's learning rate
  int64_t cycle = 1;    // bias_of_rows: number of matrices after which the rows repeat
};

struct Product {
  Factor a, b;
  int64_t m, n, k;   // rows, columns, terms of a run
  int64_t runs = 1;  // of terms
  Walk batches;      // of a and b
  uint32_t dtype, to;
  int64_t at = 0;  // first element of the result; its matrices are contiguous
};

// Terms are added in order.
Launch product(Machine& machine, Product p, const Ending& ending = {});

// Number of "", "relu", "tanh", "logistic" or "gelu"; false: unsupported.
bool activation_number(const Site& site, uint32_t& number);

// Allocates ranges of the workspace.
class Room {
 public:
  // Returns the first of `elements` elements, in elements of that type.
  int64_t take(int64_t elements, uint32_t dtype) {
    const uint64_t first = bytes_;
    bytes_ += (static_cast<uint64_t>(elements) * width(dtype) + 63) / 64 * 64;
    return static_cast<int64_t>(first / width(dtype));
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

}  // namespace harmonics::opencl
