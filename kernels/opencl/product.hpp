// Batched matrix products and their epilogues.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// An operand with strides in elements: rows and terms (k) of a; terms and columns of b. `run`: stride between runs of
// terms.
struct Factor {
  uint32_t buffer, dtype;
  int64_t row, column, run = 0;
};

struct Ending {
  enum Kind : uint32_t { none, bias_of_columns, bias_of_rows, sum, kept_sum, step, where_active };
  Kind kind = none;
  uint32_t activation = 0;  // see activation_number()
  // Buffer and type of the operand: bias; addend; w of an update; operand that must be positive.
  uint32_t extra = 0, dtype = 0;
  uint32_t number = 0;  // buffer with one element: the flag of kept_sum, the learning rate of step
  int64_t cycle = 1;    // bias_of_rows: number of matrices after which the rows repeat
};

struct Product {
  Factor a, b;
  int64_t m, n, k;   // rows, columns, terms of a run
  int64_t runs = 1;  // number of runs of terms
  Walk batches;      // over a and b
  uint32_t dtype, to;
  int64_t at = 0;  // first element of the result; its matrices are contiguous
};

// Launches a product; terms are added in order.
Launch product(Machine& machine, Product p, const Ending& ending = {});

// Sets the number of "", "relu", "tanh", "logistic" or "gelu"; false: unsupported activation.
bool activation_number(const Site& site, uint32_t& number);

// Allocates ranges of the workspace.
class Room {
 public:
  // Reserves `elements` elements. Returns the offset in elements of that type.
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
