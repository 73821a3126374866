// Converts a program over a whole window of a sequence into one that continues the sequence from caches.
#pragma once

#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

struct ContinuedSizes {
  int64_t window = 1;  // positions of `input` in the original program
  int64_t tokens = 1;  // positions that each run of the new program appends
};

struct ContinuedProgram {
  Program program;
  std::string refused;  // reason for failure: "attention at 'x0.a1' is not causal"; empty: success
};

// Converts a program that reads `input` [1, window, ...] and treats positions independently, except in causal attention
// and rotary embeddings. The new program reads `input` [1, tokens, ...] and "start" i32 [1], the number of preceding
// positions. Keys and values of each attention are states "cache.N.keys" and "cache.N.values" [1, window, ...], updated
// in place. Outputs with one row per position have one row per new position, equal to those of the original program up
// to rounding.
ContinuedProgram continue_sequence(const Program& program, const std::string& input, const ContinuedSizes& sizes);

}  // namespace harmonics::engine
