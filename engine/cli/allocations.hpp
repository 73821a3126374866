// How much the program's C++ code, libraries included, asked its heap for.
#pragma once

#include <cstdint>

namespace harmonics::cli {

uint64_t allocations_made();  // since the start; every operator new counts one

}  // namespace harmonics::cli
