// Elementwise primitives as source text for C-like device languages: OpenCL C and CUDA.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::kernels {

enum class Kind { real, whole, flag };  // of operands

// Parts of an expression: operands, their type, and the unsigned type of the same width.
struct ScalarWords {
  std::string a, b, c, type, unsigned_type;
};

// The expression; "" if it does not exist for these operands, or depends on the result type (cast). `uchar` is the type
// of booleans; LOGISTIC is a macro defined in the prelude.
std::string scalar_text(std::string_view op, Kind operands, const ScalarWords& words);

extern const char* const kScalarMacros;

}  // namespace harmonics::kernels
