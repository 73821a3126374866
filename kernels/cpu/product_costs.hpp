// What products cost, for choosing a route and dividing it into parts. Measured with AVX-512; the same for every
// instruction set, so that a product is divided alike everywhere.
#pragma once

#include <cstdint>

namespace harmonics::cpu::product_costs {

// Floating-point operations per nanosecond.
constexpr double kSmallRate = 75, kPackedRate = 95, kLibraryRate = 85, kHalfRate = 170, kBf16Rate = 600,
                 kSparseRate = 85;
constexpr double kMoveNanoseconds = 0.1;  // per element read or written by products of few rows
constexpr double kPackNanoseconds = 0.5;  // per element packed
constexpr double kBf16PackNanoseconds = 0.15;
constexpr double kMarkNanoseconds = 0.25;  // per element looked at for zeros

// Least nanoseconds of a part. A part of a packed product reads its operands itself; a part of fp16 chunks also packs
// them; one of a long sum of few results reads all of its rows and columns.
constexpr double kPackedGrain = 25000, kLibraryGrain = 40000, kHalfGrain = 50000, kSparseGrain = 12000,
                 kLongSumGrain = 2000000;

// Sizes up to which a product counts as small: packing would cost more than it saves.
constexpr int64_t kSmallSide = 12;
constexpr double kSmallFlops = 1e5;

}  // namespace harmonics::cpu::product_costs
