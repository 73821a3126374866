// Products of matrices, many at once, and what becomes of a result before it is stored.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// Where an operand's numbers are, in elements: a's from row to row and term to term, b's from term to term and column to column; `run`:
// from one run of terms to the next.
struct Factor {
  uint32_t buffer, dtype;
  int64_t row, column, run = 0;
};

struct Ending {
  enum Kind : uint32_t { none, bias_of_columns, bias_of_rows, sum, kept_sum, step, where_active };
  Kind kind = none;
  uint32_t activation = 0;           // of activation_number()
  uint32_t extra = 0, dtype = 0;     // a buffer and its type: the bias; what is added to; w that steps; what has to be above 0
  uint32_t number = 0;               // a buffer of one number: kept_sum's flag, step's rate
  int64_t cycle = 1;                 // bias_of_rows: after so many matrices its rows begin anew
};

struct Product {
  Factor a, b;
  int64_t m, n, k;   // rows, columns, terms of a run
  int64_t runs = 1;  // of terms
  Walk batches;      // matrices, in a and in b
  uint32_t dtype, to;
  int64_t at = 0;    // the result's first element; matrices follow each other
};

// Terms are added in their order.
Launch product(Machine& machine, Product p, const Ending& ending = {});

// Of "", "relu", "tanh", "logistic" and "gelu"; false: another.
bool activation_number(const Site& site, uint32_t& number);

// Workspace given out piece by piece.
class Room {
 public:
  // The first of so many elements, counted in elements of that type.
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
