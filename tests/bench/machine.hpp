// What this machine can do at most, measured: the yardsticks every benchmark is divided by.
#pragma once

#include <cstddef>
#include <string>

namespace harmonics::bench {

// "avx512", "avx2" or "none": which loops the yardsticks use. The loops are assembly: a compiler may drop or merge what
// it is given in C++, and a peak measured that way can exceed the hardware's.
std::string peak_instructions();

// Single-precision multiply-adds on all of `threads` at once, 2 FLOP each; the fastest short slice of every thread,
// added up, so that neighbours on the machine cost little. 0 when the processor has no FMA.
double peak_flops(int threads);

// Bytes per second that `threads` read from memory of `bytes` in all, each its own share again and again.
double read_bandwidth(size_t bytes, int threads);

}  // namespace harmonics::bench
