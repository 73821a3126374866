// The order of the rows in endless passes over a corpus.
#pragma once

#include <cstdint>
#include <optional>

namespace harmonics::engine {

// A permutation of 0 .. size-1, computed for each number alone: no table. Different for each seed and pass.
class RowOrder {
 public:
  RowOrder(uint64_t size, uint64_t seed, uint64_t pass);
  uint64_t at(uint64_t index) const;

 private:
  uint64_t size_;
  unsigned half_;  // bits of each half of the numbers that are permuted
  uint64_t key_;
};

}  // namespace harmonics::engine
