// Elementwise primitives as text, for devices whose compiler takes a C: OpenCL C and CUDA's.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::kernels {

enum class Sort { real, whole, flag };  // of operands

// What an operation's text is made of: its operands, their type, and the unsigned type of that width.
struct ScalarWords {
  std::string a, b, c, type, unsigned_type;
};

// The expression; "": there is none of such operands, or it depends on the result (cast). `uchar` is the type of bools; LOGISTIC is a
// macro that stands before.
std::string scalar_text(std::string_view op, Sort operands, const ScalarWords& words);

extern const char* const kScalarMacros;

}  // namespace harmonics::kernels
