// Products of matrices by cuBLASLt: how a call is told to it. It counts columns first, so every matrix is given as its transpose.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// c [batch, m, n], dense, = a [batch, m, k] times b [batch, k, n], each with the distances between rows, columns and batch entries.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, a_batch = 0, b_row = 0, b_column = 0, b_batch = 0;
  uint32_t dtype = HX_F32;
  bool may_round = false;  // operands to ten bits of mantissa
  Operand a, b, c;
  // What follows in the same pass: y = activation(c + bias). Only of relu.
  bool has_bias = false, relu = false;
  Operand bias;
  // Or, instead of that: `bias` gets a or b summed over k.
  enum class Sum : uint8_t { none, a, b } sum = Sum::none;
};

// A step that cuBLASLt does; null, with the reason, when it cannot.
std::unique_ptr<Step> lt_step(Machine& machine, const Product& product, uint64_t& workspace, uint32_t workspace_buffer, std::string& why);

}  // namespace harmonics::cuda
