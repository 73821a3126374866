// Functions of one instruction set that sources of several families call.
#pragma once

#include "../block.hpp"

namespace harmonics::cpu {
struct Product;
}  // namespace harmonics::cpu
namespace harmonics::cpu::HM_ISA {

Block find_block(ScalarOp op, uint32_t operand_dtype, uint32_t result_dtype, int64_t result_bytes);
Block find_cast(uint32_t from, uint32_t to);
Block find_trigonometric(ScalarOp op, uint32_t operand_dtype);  // tan, hyperbolic functions, inverses
void epilogue(float* y, int64_t rows, int64_t columns, int64_t stride, const float* bias, int activation);
// Adds `more`, the sums of the second half of the depth, to C, the sums of the first, and applies bias, activation and
// chain, for one of `parts` slices of rows.
void end_halves(const cpu::Product& p, void* const* buffers, const float* more, uint32_t parts, uint32_t part);
void end_product(const cpu::Product& p, void* const* buffers, int64_t row, int64_t row_end, int64_t column,
                 int64_t column_end);
// Writes columns of C, all rows: `sums`, of rows `sums_row` apart, with bias, activation and chain.
void end_columns(const cpu::Product& p, void* const* buffers, const float* sums, int64_t sums_row, int64_t column,
                 int64_t column_end);

}  // namespace harmonics::cpu::HM_ISA
