// Which inputs of a program hold indices of rows or classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Follows whole numbers from the first `inputs` inputs of the program to the functionals that index rows or classes
// with them. Returns the number of rows or classes by input; 0: its numbers are not indices.
std::vector<int64_t> index_limits(const Program& program, size_t inputs);

}  // namespace harmonics::engine
