// The kernels of isa/, compiled once per instruction set and chosen when the device is made.
//
// Sources below isa/ live in a namespace of their own per instruction set and see only plain structs: no inline
// function of another namespace may be emitted there, or the linker could pick the copy that needs AVX-512 for
// everybody.
#pragma once

#include <cstdint>

#include "block.hpp"

namespace harmonics::cpu {

using Run = void (*)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);

struct Product;

struct IsaTable {
  const char* name;
  int64_t vector;  // f32 numbers in a vector
  // The function that computes `n` elements of a scalar operation on registers of these types; null: not served.
  Block (*block)(ScalarOp op, uint32_t operand_dtype, uint32_t result_dtype);
  // y = activation(y + bias) over a block of rows.
  void (*epilogue)(float* y, int64_t rows, int64_t columns, int64_t stride, const float* bias, int activation);
  // What becomes of a part of C, [row, row_end) x [column, column_end), once it is summed: bias and activation.
  void (*end_product)(const Product& p, void* const* buffers, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
#define HM_KERNEL(name) Run name;
#include "kernel_list.inc"
#undef HM_KERNEL
};

// HARMONICS_ISA=baseline|avx2|avx512 overrides the choice; a set this processor lacks is an error.
const IsaTable& isa();

namespace baseline {
extern const IsaTable table;
}
namespace avx2 {
extern const IsaTable table;
}
namespace avx512 {
extern const IsaTable table;
}

}  // namespace harmonics::cpu
