// Elementwise primitives as source text for C-like device languages: OpenCL C and CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace harmonics::kernels {

enum class Kind { real, whole, flag };  // of operands
Kind kind_of(uint32_t dtype);

// Arithmetic type: "float" for f16 and bf16 too; "uchar" for bool; i8 is OpenCL's char. Null: unsupported.
const char* type_name(uint32_t dtype);
const char* word_name(uint32_t dtype);  // unsigned type of the same width

// Substitutions in an expression: operands, their type, and the unsigned type of the same width.
struct ScalarWords {
  std::string a, b, c, type, unsigned_type;
};

// Returns the expression; "" if the operation does not exist for these operands or depends on the result type (cast).
// Booleans are `uchar`; LOGISTIC is a macro of the prelude.
std::string scalar_text(std::string_view op, Kind operands, const ScalarWords& words);

// Operations for which these texts are the whole kernel.
inline constexpr const char* kScalarOperations[] = {
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "erf",
    "logistic",
    "logical_not",
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "remainder",
    "equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "atan2",
    "is_nan",
    "is_inf",
    "bit_and",
    "bit_or",
    "bit_xor",
    "shift_left",
    "shift_right_logical",
    "shift_right_arithmetic",
};

extern const char* const kScalarMacros;

}  // namespace harmonics::kernels
