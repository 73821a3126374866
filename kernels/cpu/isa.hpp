// The choice of vector code in isa/ and families/, which is compiled once per instruction set and selected when the
// device is created.
//
// Each instruction set has its own namespace, and vector code uses only plain structs. It must not emit inline
// functions of other namespaces: the linker might keep the copy compiled for AVX-512 and use it for all callers.
#pragma once

#include <cstdint>

#include "block.hpp"

namespace harmonics::cpu {

using Kernel = void(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
using Run = Kernel*;
// Writes one piece of the packed form of a constant operand, as hx_kernel::pack does.
using Packing = void(const void* context, const void* input, uint64_t piece, void* packed);

struct Product;

// What planning code of several families and oneDNN's kernels call. A family calls its own kernels by HM_VECTOR_CODE.
struct IsaTable {
  const char* name;
  int64_t vector;  // floats per vector
  // Returns the function that computes `n` elements of a scalar operation on these types; null if unsupported.
  // `result_bytes`: size of an element of the result.
  Block (*block)(ScalarOp op, uint32_t operand_dtype, uint32_t result_dtype, int64_t result_bytes);
  // y = activation(y + bias) over a block of rows.
  void (*epilogue)(float* y, int64_t rows, int64_t columns, int64_t stride, const float* bias, int activation);
  // Epilogue of a finished block of C, [row, row_end) x [column, column_end): bias and activation.
  void (*end_product)(const Product& p, void* const* buffers, int64_t row, int64_t row_end, int64_t column,
                      int64_t column_end);
};

// Returns the table for this processor. HARMONICS_ISA=baseline|avx2|avx512 overrides the choice; an unsupported set is
// an error.
const IsaTable& isa();
// Returns whether steps of optimizers run between the multiply-adds of a product, and those of Adam with moments in f32
// use the divider, which works beside the units that multiply: with AVX-512 faster on Zen 4, slower on Sapphire Rapids
// (decision 137). HARMONICS_UPDATES=between or after overrides it; other values are an error.
bool updates_between_products();
// Requests the AMX tile registers from the operating system; returns whether this process may use them.
bool has_tile_registers();

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

// Declares the function NAME of families/, of a type such as Kernel. In vector code it is that of the own instruction
// set. In planning code chosen::NAME() returns the one for this processor.
#ifdef HM_ISA
#define HM_VECTOR_FUNCTION(TYPE, NAME) \
  namespace harmonics::cpu::HM_ISA {   \
  TYPE NAME;                           \
  }
#else
namespace harmonics::cpu {
template <typename Function>
Function* choose_function(Function* baseline_code, Function* avx2_code, Function* avx512_code) {
  return &isa() == &avx512::table ? avx512_code : &isa() == &avx2::table ? avx2_code : baseline_code;
}
}  // namespace harmonics::cpu
#define HM_VECTOR_FUNCTION(TYPE, NAME)                                                      \
  namespace harmonics::cpu {                                                                \
  namespace baseline {                                                                      \
  TYPE NAME;                                                                                \
  }                                                                                         \
  namespace avx2 {                                                                          \
  TYPE NAME;                                                                                \
  }                                                                                         \
  namespace avx512 {                                                                        \
  TYPE NAME;                                                                                \
  }                                                                                         \
  namespace chosen {                                                                        \
  inline TYPE* NAME() { return choose_function(baseline::NAME, avx2::NAME, avx512::NAME); } \
  }                                                                                         \
  }
#endif
#define HM_VECTOR_CODE(NAME) HM_VECTOR_FUNCTION(Kernel, NAME)
