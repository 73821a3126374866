// Shuffles the rows of a corpus in each pass.
#pragma once

#include <cstdint>
#include <optional>

namespace harmonics::engine {

// A permutation of 0 .. size-1 that is computed per index, without a table. It depends on seed and pass.
class RowOrder {
 public:
  RowOrder(uint64_t size, uint64_t seed, uint64_t pass);
  uint64_t at(uint64_t index) const;

 private:
  uint64_t size_;
  unsigned half_;  // bits of each half of the Feistel network
  uint64_t key_;
};

}  // namespace harmonics::engine
