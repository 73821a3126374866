// From a program over a whole window of a sequence to one that continues the sequence from caches.
#pragma once

#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

struct ContinuedSizes {
  int64_t window = 1;  // positions of `input` in the given program
  int64_t tokens = 1;  // positions that a run of the new one appends
};

struct ContinuedProgram {
  Program program;
  std::string refused;  // why there is none: "attention at 'x0.a1' is not causal"; empty: there is
};

// `program` reads `input` [1, window, ...] and computes every position from itself, but for causal attention and rotary
// positions. The result reads `input` [1, tokens, ...] and "start" i32 [1], the number of positions before them; the
// keys and values of each attention are states "cache.N.keys" and "cache.N.values" [1, window, ...], written in place.
// Outputs that had a row for each position have one for each of the new ones, with the values of the program over the
// whole window up to rounding.
ContinuedProgram continue_sequence(const Program& program, const std::string& input, const ContinuedSizes& sizes);

}  // namespace harmonics::engine
