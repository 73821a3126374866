// Finds the inputs of a program that hold indices of rows or classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Follows integers from the first `inputs` inputs of the program to the functionals that use them as indices of rows or
// classes. Returns the number of rows or classes by input; 0: not indices.
std::vector<int64_t> index_limits(const Program& program, size_t inputs);

}  // namespace harmonics::engine
