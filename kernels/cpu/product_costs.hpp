// Cost model of products, for choosing a route and dividing it into parts. Measured with AVX-512 and used for every
// instruction set, so that a product is divided into the same parts everywhere.
#pragma once

#include <cstdint>

namespace harmonics::cpu::product_costs {

// Floating-point operations per nanosecond.
constexpr double kSmallRate = 75, kPackedRate = 95, kLibraryRate = 85, kSparseRate = 85;
constexpr double kMoveNanoseconds = 0.1;  // per element read or written by products of few rows
constexpr double kPackNanoseconds = 0.5;  // per element packed
constexpr double kRoundedPackNanoseconds = 0.15;
constexpr double kMarkNanoseconds = 0.25;  // per element tested for zero
constexpr double kReadNanoseconds = 0.1;   // per element of a weight that is read once, from a large cache

// Minimum nanoseconds of a part. Each part of a packed product reads its operands; a part of an fp16 product also packs
// them; a part of a large depth with few results reads all of its rows and columns.
constexpr double kPackedGrain = 25000, kLibraryGrain = 40000, kHalfGrain = 50000, kSparseGrain = 12000,
                 kLongSumGrain = 2000000, kReadGrain = 3000;

// Up to these sizes a product is small: packing would cost more than it saves.
constexpr int64_t kSmallSide = 12;
constexpr double kSmallFlops = 1e5;

}  // namespace harmonics::cpu::product_costs
