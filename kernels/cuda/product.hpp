// Description of a matrix product. cuBLASLt is column-major, so every matrix is passed to it as its transpose.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// Rounding of f32 operands. fp8 is E4M3, with one power-of-two scale per operand.
enum class Rounding : uint8_t { none, tf32, bf16, fp8 };

// c [batch, m, n] = a [batch, m, k] b [batch, k, n]. c is dense; a and b have strides of rows, columns and batch
// entries.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, a_batch = 0, b_row = 0, b_column = 0, b_batch = 0;
  uint32_t dtype = HX_F32;
  Rounding rounding = Rounding::none;  // a and b are already rounded, except for tf32
  Operand a, b, c;
  Operand scale_a, scale_b;  // fp8: scales of a and b, f32
  // Epilogue: y = activation(c + bias); the only activation is relu.
  bool has_bias = false, relu = false;
  Operand bias;
  // Alternative epilogue: writes the sum of a or b over k to `bias`.
  enum class Sum : uint8_t { none, a, b } sum = Sum::none;
};

// Returns a cuBLASLt step; null with the reason in `why` if unsupported.
std::unique_ptr<Step> lt_step(Machine& machine, const Product& product, uint64_t& workspace, uint32_t workspace_buffer,
                              std::string& why);

}  // namespace harmonics::cuda
