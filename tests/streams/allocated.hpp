// Bytes requested from operator new in this test program, counted in test_allocation.cpp.
#pragma once

#include <cstdint>

namespace harmonics::engine::testing {

uint64_t allocations_made();
uint64_t bytes_allocated();

}  // namespace harmonics::engine::testing
