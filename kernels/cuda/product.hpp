// Products of matrices by cuBLASLt: how a call is told to it. It counts columns first, so every matrix is given as its transpose.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// What operands in f32 become before they are multiplied. fp8 is E4M3: each operand is scaled as a whole, by a power of two.
enum class Rounding : uint8_t { none, tf32, bf16, fp8 };

// c [batch, m, n], dense, = a [batch, m, k] times b [batch, k, n], each with the distances between rows, columns and batch entries.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, a_batch = 0, b_row = 0, b_column = 0, b_batch = 0;
  uint32_t dtype = HX_F32;
  Rounding rounding = Rounding::none;  // but for tf32: a and b are rounded already
  Operand a, b, c;
  Operand scale_a, scale_b;  // of fp8: what a number stands for, in f32
  // What follows in the same pass: y = activation(c + bias). Only of relu.
  bool has_bias = false, relu = false;
  Operand bias;
  // Or, instead of that: `bias` gets a or b summed over k.
  enum class Sum : uint8_t { none, a, b } sum = Sum::none;
};

// A step that cuBLASLt does; null, with the reason, when it cannot.
std::unique_ptr<Step> lt_step(Machine& machine, const Product& product, uint64_t& workspace, uint32_t workspace_buffer, std::string& why);

}  // namespace harmonics::cuda
