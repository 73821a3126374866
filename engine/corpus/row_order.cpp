#include "engine/corpus/row_order.hpp"

#include <harmonics/philox.hpp>

namespace harmonics::engine {

RowOrder::RowOrder(uint64_t size, uint64_t seed, uint64_t pass)
    : size_(size), half_(1), key_(splitmix64(seed ^ splitmix64(pass ^ 0x726F7773u))) {
  while (half_ < 32 && uint64_t{1} << (2 * half_) < size) ++half_;
}

// A Feistel network over the next power of 4 that repeats until the number is in range (cycle walking, Black and
// Rogaway 2002).
uint64_t RowOrder::at(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_) - 1;
  uint64_t x = index;
  do {
    uint64_t left = x >> half_, right = x & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t mixed = (left ^ splitmix64(right ^ key_ ^ round << 56)) & mask;
      left = right;
      right = mixed;
    }
    x = left << half_ | right;
  } while (x >= size_);
  return x;
}

}  // namespace harmonics::engine
