// Elementwise primitives as source text for C-like device languages: OpenCL C and CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace harmonics::kernels {

enum class Kind { real, whole, flag };  // of operands
Kind kind_of(uint32_t dtype);

// Arithmetic type: "float", also for f16 and bf16; bool is uchar; i8 is OpenCL's char. Null: no type.
const char* type_name(uint32_t dtype);
const char* word_name(uint32_t dtype);  // unsigned type of the same width

// Parts of an expression: operands, their type, and the unsigned type of the same width.
struct ScalarWords {
  std::string a, b, c, type, unsigned_type;
};

// The expression; "" if it does not exist for these operands, or depends on the result type (cast). `uchar` is the type
// of booleans; LOGISTIC is a macro defined in the prelude.
std::string scalar_text(std::string_view op, Kind operands, const ScalarWords& words);

extern const char* const kScalarMacros;

}  // namespace harmonics::kernels
