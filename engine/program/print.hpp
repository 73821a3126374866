// Text form of a program: one node per line, parsed back without loss.
//
//   program "mnist"
//   %0: f32[64, 784] = input "pixels"
//   %1: f32[10, 784] = parameter "digits.weight"
//   %2: f32[] = literal [0.5]
//   %3: f32[64, 10] = linear(%0, %1) {activation = "relu"} @digits
//   %4: f32[64, 3], %5: i64[64, 3] = top_k(%3) {k = 3}
//   output "best" = %5
//   update "digits.weight" = %1
//
// The line of a scan is followed by its body, whose values are numbered separately:
//
//   %6: f32[3], %7: f32[5, 3] = scan(%4, %5) {carries = 1, constants = 0, length = 5, reverse = false}
//   begin "scan"
//     %0: f32[3] = input "0"
//     ...
//     output "0" = %2
//   end
//
// The scope of a node follows `@`: the name of its phase unless that is `forward`, its path, its origin, and the type
// that operands of its products are rounded to: @gradient/hidden from "net.hmx:9:3" in fp16.
//
// `#` begins a comment. Functionals are called by name, or as call "NAME"(...) if the name is not a word or is that of
// a primitive. Long literals are written as little-endian bytes: literal bytes "0000803f".
#pragma once

#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns the text form. Values are numbered in order of creation.
std::string print(const Program& program);

// Parses and verifies the output of print(). Throws SourceErrors with positions in the text `name`. Host functions are
// restored by name only and cannot be run.
Program parse_program(const std::string& text, const std::string& name);

}  // namespace harmonics::engine
